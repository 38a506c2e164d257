//! What the tasks need besides cargo: found, installed where that is allowed, or named.

use crate::run::{Done, command, output, run, succeeds};

/// Where a tool comes from on Debian.
pub(crate) struct Tool {
    /// What to call.
    pub(crate) program: &'static str,
    /// The Debian package.
    pub(crate) package: &'static str,
}

pub(crate) const CHROMIUM: Tool = Tool { program: "/usr/bin/chromium", package: "chromium" };
pub(crate) const NODE: Tool = Tool { program: "node", package: "nodejs" };
pub(crate) const NPM: Tool = Tool { program: "npm", package: "npm" };
pub(crate) const PYTHON: Tool = Tool { program: "python3", package: "python3-venv" };
pub(crate) const REDIS: Tool = Tool { program: "redis-server", package: "redis-server" };

/// The standard library for WebAssembly; rustup has it in about 30 MB.
pub(crate) fn wasm_target() -> Done {
    const TARGET: &str = "wasm32-unknown-unknown";
    let installed = output(&mut command("rustup", &["target", "list", "--installed"]));
    if installed.is_ok_and(|list| list.lines().any(|line| line == TARGET)) {
        return Ok(());
    }
    run(&mut command("rustup", &["target", "add", TARGET]))
}

/// Sees to it that a tool is there: installs its package where we are root on Debian.
pub(crate) fn need(tool: &Tool) -> Done {
    if present(tool.program) {
        return Ok(());
    }
    install(tool.package)?;
    if present(tool.program) { Ok(()) } else { Err(missing(tool.program, tool.package)) }
}

/// PostgreSQL's own programs lie outside the path.
pub(crate) fn need_postgres() -> Done {
    let found = || {
        std::fs::read_dir("/usr/lib/postgresql")
            .is_ok_and(|mut versions| versions.any(|v| v.is_ok_and(|v| v.path().join("bin/initdb").exists())))
    };
    if found() {
        return Ok(());
    }
    install("postgresql")?;
    if found() { Ok(()) } else { Err(missing("initdb", "postgresql")) }
}

pub(crate) fn present(program: &str) -> bool {
    succeeds(&mut command("sh", &["-c", "command -v -- \"$0\"", program]))
}

fn install(package: &str) -> Done {
    let may = present("apt-get") && output(&mut command("id", &["-u"])).is_ok_and(|id| id.trim() == "0");
    if !may {
        return Err(format!("{package} is missing, and only root on Debian can install it from here").into());
    }
    eprintln!("    installing {package}");
    let mut apt = command("apt-get", &["install", "-y", "-q", "--no-install-recommends", package]);
    // Debian starts what it installs; the tests start their own on ports of their own.
    apt.env("DEBIAN_FRONTEND", "noninteractive").env("RUNLEVEL", "1");
    output(&mut apt).map(|_| ())
}

fn missing(program: &str, package: &str) -> Box<dyn std::error::Error> {
    format!("{program} is missing; install {package}").into()
}
