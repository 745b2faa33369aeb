//! *What*: [`strict_assert!`](crate::strict_assert), an equation that must hold, and
//! [`strict_unreachable!`](crate::strict_unreachable), a branch that cannot be taken. Both are
//! checked in debug builds and, with the feature `strict`, in release builds; elsewhere they are
//! no code, and what follows them deals with the case as well as it can.
//! *Invariants*: an equation costs a few loads, never a walk: strict builds run whole programs.
//! *Locking*: none; whoever states an equation holds what keeps it still.
//! *Context*: any. A failure is a panic: in the preload library a line on stderr that names the
//! equation and its place, without allocation, and the end of the process.

/// Whether equations are checked.
pub const STRICT: bool = cfg!(any(debug_assertions, feature = "strict"));

/// Ends the program because of what the caller found broken.
#[cold]
#[inline(never)]
#[track_caller]
#[allow(clippy::panic, reason = "this is where a broken equation ends")]
pub fn broken(equation: &str) -> ! {
    panic!("broken: {equation}")
}

/// States an equation, with `strict` in release builds as well.
#[macro_export]
macro_rules! strict_assert {
    ($equation:expr $(,)?) => {
        if $crate::strict::STRICT && !($equation) {
            $crate::strict::broken(stringify!($equation));
        }
    };
    ($equation:expr, $meaning:literal $(,)?) => {
        if $crate::strict::STRICT && !($equation) {
            $crate::strict::broken(concat!(stringify!($equation), ": ", $meaning));
        }
    };
}

/// States that this branch cannot be taken. Without `strict` it goes on.
#[macro_export]
macro_rules! strict_unreachable {
    ($why:literal) => {
        if $crate::strict::STRICT {
            $crate::strict::broken($why);
        }
    };
}

#[cfg(test)]
mod tests {
    #[test]
    #[should_panic(expected = "broken: used >= nr: uncharged more than was charged")]
    fn a_broken_equation_is_named() {
        let (used, nr) = (1, 2);
        strict_assert!(used >= nr, "uncharged more than was charged");
    }

    #[test]
    fn an_equation_that_holds_is_silent() {
        strict_assert!(1 + 1 == 2);
        strict_assert!(super::STRICT, "tests are debug builds or strict");
    }
}
