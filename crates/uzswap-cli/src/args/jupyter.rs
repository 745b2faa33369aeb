//! *What*: the options of `uzswap jupyter`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::examples;
use crate::size::Size;

#[derive(Debug, Args)]
pub struct Jupyter {
    #[command(subcommand)]
    pub action: Action,
}

#[derive(Debug, Subcommand)]
pub enum Action {
    /// Write a kernelspec that starts a kernel under 'uzswap run'
    #[command(after_help = examples::JUPYTER)]
    Install(Install),
    /// Remove a kernelspec that 'install' wrote
    #[command(after_help = examples::JUPYTER)]
    Uninstall(Uninstall),
}

#[derive(Debug, Args)]
pub struct Install {
    /// Limit of the kernel and all that it starts [default: what the cgroup or the machine leaves]
    #[arg(long, value_name = "SIZE")]
    pub ram: Option<Size>,

    /// The kernel to start, as 'jupyter kernelspec list' names it
    #[arg(long, value_name = "KERNEL", default_value = "python3")]
    pub kernel: String,

    /// Name of the new kernelspec [default: uzswap-KERNEL]
    #[arg(long)]
    pub name: Option<String>,

    /// Write it below DIR/share/jupyter rather than for this user
    #[arg(long, value_name = "DIR")]
    pub prefix: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct Uninstall {
    /// Name of the kernelspec
    #[arg(long, default_value = "uzswap-python3")]
    pub name: String,

    /// Remove it below DIR/share/jupyter
    #[arg(long, value_name = "DIR")]
    pub prefix: Option<PathBuf>,
}
