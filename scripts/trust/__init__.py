"""What scripts/soak, scripts/sudden-death and scripts/kernels have in common."""
