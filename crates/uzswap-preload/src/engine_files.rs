//! *What*: the files of the engine's two forms, as this process was told in its environment when it
//! started: it gives them to what it executes.
//!
//! *Invariants*: kept in this process's own memory. In the group file a process with fewer rights
//! could change which code those with more execute.
//! *Locking*: none; written once, by the start. *Context*: init; signal.

use uzswap_group::environment::{MAX_FILE, Told};
use uzswap_group::text::Text;

const _: () = assert!(MAX_FILE <= Text::LEN);

static LIBRARY: Text = Text::new();
static IMAGE: Text = Text::new();

/// Keeps what `told` says of them.
pub fn keep(told: &Told<'_>) {
    for (file, path) in [(&LIBRARY, told.library), (&IMAGE, told.image)] {
        file.set(core::str::from_utf8(path).unwrap_or_default());
    }
}

/// Path of the library; empty if it is not known.
pub fn library(buffer: &mut [u8; Text::LEN]) -> &str {
    LIBRARY.get(buffer)
}

/// Path of the image; empty if it is not known.
pub fn image(buffer: &mut [u8; Text::LEN]) -> &str {
    IMAGE.get(buffer)
}
