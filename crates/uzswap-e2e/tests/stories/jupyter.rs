//! A notebook whose kernel runs under uzswap: it works, is interrupted, and a limit that ends it is
//! told. The kernel is a real one, driven by nbclient; without them the story is skipped.

use std::path::PathBuf;

use uzswap_e2e::{Job, Scratch, skip, uzswap, workspace};

/// A Python that has nbclient and ipykernel: `UZSWAP_JUPYTER_PYTHON`, or the one of
/// `target/tools/jupyter`.
fn python() -> Option<PathBuf> {
    let named = std::env::var_os("UZSWAP_JUPYTER_PYTHON").map(PathBuf::from);
    let python = named.unwrap_or_else(|| workspace().join("target/tools/jupyter/bin/python"));
    let job = Job::new(&python).args(["-c", "import nbclient, ipykernel"]);
    if python.exists() && job.native().status == 0 {
        return Some(python);
    }
    skip(
        "no Jupyter here (python3 -m venv target/tools/jupyter && target/tools/jupyter/bin/pip \
         install nbclient ipykernel)",
    );
    None
}

/// Runs a notebook's cells; prints what each put out, and how it ended.
const NOTEBOOK: &str = r"
import sys, threading, time
import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import DeadKernelError

class Client(NotebookClient):
    async def async_execute_cell(self, cell, *rest, **named):
        if 'interrupt me' in cell.source:
            def soon():
                time.sleep(1.0)
                import asyncio
                asyncio.run(self.km.interrupt_kernel()) if asyncio.iscoroutinefunction(self.km.interrupt_kernel) else self.km.interrupt_kernel()
            threading.Thread(target=soon, daemon=True).start()
        return await super().async_execute_cell(cell, *rest, **named)

book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in sys.argv[2:]])
client = Client(book, kernel_name=sys.argv[1], timeout=300, allow_errors=True)
try:
    client.execute()
except DeadKernelError:
    print('the kernel died')
for cell in book.cells:
    for output in cell.get('outputs', []):
        print(output.get('text') or output.get('data') or (output.get('ename'), output.get('evalue')))
";

/// More than the limit of the kernel, several times over; right when it is read back.
const LARGE: &str = "
rows = [bytes([n % 251]) * 65536 for n in range(4096)]
print('right' if all(row[0] == n % 251 for n, row in enumerate(rows)) else 'wrong', len(rows))";

#[test]
fn a_notebook_has_more_memory_than_its_limit_and_can_be_interrupted() {
    let Some(python) = python() else { return };
    let scratch = Scratch::new();
    let data = scratch.join("data");
    let install = |args: &str| {
        Job::line("jupyter install")
            .words(args)
            .env("JUPYTER_DATA_DIR", &data)
            .uzswap_itself()
    };
    // The one to wrap, as ipykernel installs it, and the one that wraps it.
    let _ = Job::new(&python)
        .words("-m ipykernel install --name plain --display-name Plain --prefix")
        .arg(scratch.join("prefix"))
        .native()
        .expect_success("ipykernel install");
    let path = scratch.join("prefix/share/jupyter");
    let said = Job::line("jupyter install --kernel plain --ram 128M")
        .env("JUPYTER_DATA_DIR", &data)
        .env("JUPYTER_PATH", &path)
        .uzswap_itself()
        .expect_success("install");
    assert!(
        said.text().contains("'Plain (uzswap, 128 MiB)'"),
        "{}",
        said.text()
    );
    let mut dirs = vec![uzswap().parent().expect("a directory").to_owned()];
    dirs.extend(std::env::split_paths(
        &std::env::var_os("PATH").unwrap_or_default(),
    ));
    let path_with_uzswap = std::env::join_paths(dirs).expect("a PATH");
    let notebook = |cells: &[&str]| {
        Job::new(&python)
            .args(["-c", NOTEBOOK, "uzswap-plain"])
            .args(cells)
            .env("JUPYTER_DATA_DIR", &data)
            .env("UZSWAP_SWAP", "none")
            .env("PYTHONPATH", workspace().join("python"))
            .env("PATH", &path_with_uzswap)
            .native()
    };
    let interrupted = "import time\ntime.sleep(100)  # interrupt me";
    let shown = "%load_ext uzswap\n%uzswap ram=160M";
    // What faults after the first table shows in the next, in the same place.
    let live = "%uzswap live 60
import time, uzswap
print(uzswap.stat()['faults'], 'before')
more = [bytes([n % 251]) * 65536 for n in range(256)]
time.sleep(6)";
    let ran = notebook(&[LARGE, interrupted, "print('goes on')", shown, live]);
    let ran = ran.expect_success("the notebook");
    let text = ran.text();
    assert!(
        text.contains("160.0 MiB") && text.contains("compressed"),
        "{text}"
    );
    assert!(text.contains("right 4096"), "{text}\n{}", ran.stderr);
    assert!(
        text.contains("KeyboardInterrupt") && text.contains("goes on"),
        "{text}"
    );
    let number = |before: &str| {
        let (text, _) = text.rsplit_once(before).expect("a number");
        let start = text
            .rfind(|c: char| !c.is_ascii_digit())
            .map_or(0, |at| at + 1);
        text[start..].parse::<u64>().expect("a number")
    };
    assert!(number(" faults, ") > number(" before"), "{text}");
    // Data that do not compress do not fit: the kernel ends, and the cell says why.
    let too_much = "import os\nrows = [os.urandom(65536) for _ in range(8192)]";
    let ran = notebook(&["print('begins')", too_much]);
    let text = ran.text();
    let told = text
        .lines()
        .find(|line| line.contains("('uzswap', 'python"));
    assert!(
        text.contains("the kernel died")
            && told.is_some_and(|told| told.contains("was ended") && told.contains("--ram")),
        "{text}\n{}",
        ran.stderr
    );
    ran.expect_stderr(&["was ended", "--ram"]);
    // Only what is uzswap's is replaced or removed.
    let _ = install("--kernel nosuch").expect_refused(1, &["there is no kernelspec nosuch"]);
    let remove = |name: &str| {
        Job::line("jupyter uninstall --name")
            .arg(name)
            .env("JUPYTER_DATA_DIR", &data)
            .uzswap_itself()
    };
    let _ = remove("uzswap-plain").expect_success("uninstall");
    assert!(!data.join("kernels/uzswap-plain").exists());
    let _ = remove("uzswap-plain").expect_refused(1, &["there is no kernelspec"]);
    let _ = remove("../x").expect_refused(2, &["is no name of a kernelspec"]);
}
