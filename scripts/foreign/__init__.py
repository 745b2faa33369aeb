"""Test suites of other projects, run natively and under uzswap: see scripts/foreign-suites."""
