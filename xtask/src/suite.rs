//! Everything that can be tested, step by step, with one line of sums at the end.

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use crate::build::{self, Profile};
use crate::lint;
use crate::run::{Done, cargo, command, output, root, run, step, succeeds};
use crate::soak;
use crate::tools;

/// How long `forebay demo` may take to say where it is.
const DEMO_READY: Duration = Duration::from_secs(60);

/// Runs every step, whatever became of the one before.
pub(crate) fn all() -> Done {
    let mut suite = Suite::default();
    suite.step("Formatting", lint::formatting);
    suite.step("Clippy, server", lint::clippy_server);
    suite.step("Clippy, console", lint::clippy_console);
    suite.where_installed("Dependencies (cargo deny)", deny_is_here, || run(&mut cargo(&["deny", "check"])));
    suite.optional("PostgreSQL and Redis for the tests", || Ok(()), servers);
    suite.step("Unit and integration tests", native);
    suite.step("Engine under every interleaving (loom)", loom);
    suite.step("Fuzz targets, briefly", soak::briefly);
    suite.step("Build, debug", || build::all(Profile::Debug));
    suite.optional("OpenAI's own client", python, || script(Profile::Debug, "openai_client.py"));
    suite.optional("LiteLLM", python, || script(Profile::Debug, "other_client.py"));
    suite.optional("API document (schemathesis)", python, || script(Profile::Debug, "contract.py"));
    suite.optional("Browser, debug bundle", browser_is_here, || browser(Profile::Debug));
    suite.step("Build, release", || build::all(Profile::Release));
    suite.optional("Browser, release bundle", browser_is_here, || browser(Profile::Release));
    suite.end()
}

/// What became of the steps so far.
#[derive(Default)]
struct Suite {
    passed: usize,
    failed: Vec<String>,
    skipped: Vec<String>,
}

impl Suite {
    fn step(&mut self, name: &str, work: impl FnOnce() -> Done) {
        match step(name, work) {
            Ok(()) => self.passed += 1,
            Err(error) => {
                eprintln!("    {error}");
                self.failed.push(name.to_owned());
            }
        }
    }

    /// A step that needs something this machine may lack. Under `CI=true` that is a failure.
    fn optional(&mut self, name: &str, needs: impl FnOnce() -> Done, work: impl FnOnce() -> Done) {
        match needs() {
            Ok(()) => self.step(name, work),
            Err(missing) if std::env::var("CI").is_ok_and(|ci| ci == "true") => {
                self.step(name, || Err(missing));
            }
            missing => self.where_installed(name, || missing, work),
        }
    }

    /// A step with a tool that nobody has to have: it is said that it was left out, everywhere.
    fn where_installed(&mut self, name: &str, needs: impl FnOnce() -> Done, work: impl FnOnce() -> Done) {
        match needs() {
            Ok(()) => self.step(name, work),
            Err(missing) => {
                eprintln!("\n==> {name}\n    skipped: {missing}");
                self.skipped.push(name.to_owned());
            }
        }
    }

    fn end(self) -> Done {
        eprintln!();
        for name in &self.skipped {
            eprintln!("skipped: {name}");
        }
        for name in &self.failed {
            eprintln!("FAILED: {name}");
        }
        println!("{} passed, {} failed", self.passed, self.failed.len());
        if self.failed.is_empty() { Ok(()) } else { Err("not everything passed".into()) }
    }
}

fn deny_is_here() -> Done {
    if succeeds(&mut cargo(&["deny", "--version"])) {
        Ok(())
    } else {
        Err("cargo-deny is not installed (cargo install --locked cargo-deny)".into())
    }
}

/// The tests start their own; the programs must be there.
fn servers() -> Done {
    tools::need_postgres()?;
    tools::need(&tools::REDIS)
}

fn native() -> Done {
    run(&mut cargo(&["test", "-p", "forebay-engine", "-p", "forebay-wire", "-p", "xtask"]))?;
    run(&mut cargo(&["test", "-p", "forebay-app", "--features", "ssr"]))?;
    run(&mut cargo(&["test", "-p", "forebay"]))
}

/// A feature, and not the usual `--cfg loom`, which would change tokio too and rebuild everything.
fn loom() -> Done {
    run(&mut cargo(&["test", "-p", "forebay-engine", "--features", "loom", "--lib", "loom"]))
}

/// Python with the clients of `end2end/requirements.txt`, in an environment of its own.
fn python() -> Done {
    tools::need(&tools::PYTHON)?;
    let python = venv_python();
    if !python.exists() {
        run(command("python3", &["-m", "venv"]).arg(root().join(VENV)))?;
    }
    let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"];
    run(command_at(&python).args(install).arg("end2end/requirements.txt"))
}

const VENV: &str = "target/python";

fn venv_python() -> PathBuf {
    root().join(VENV).join("bin/python")
}

/// Runs a script of `end2end` against a demo.
fn script(profile: Profile, name: &str) -> Done {
    let demo = Demo::start(profile)?;
    let token = demo.operator_token()?;
    let mut script = command_at(&venv_python());
    script.arg(format!("end2end/{name}")).env("FOREBAY_OPERATOR_TOKEN", token);
    run(demo.tell(&mut script))
}

fn browser_is_here() -> Done {
    tools::need(&tools::NODE)?;
    tools::need(&tools::NPM)?;
    tools::need(&tools::CHROMIUM)
}

fn browser(profile: Profile) -> Done {
    let end2end = root().join("end2end");
    run(command("npm", &["ci", "--no-audit", "--no-fund", "--loglevel=error"]).current_dir(&end2end))?;
    let demo = Demo::start(profile)?;
    let mut tests = command("npm", &["test", "--silent"]);
    tests.current_dir(&end2end).env("FOREBAY_SCREENSHOTS", end2end.join("test-results/screenshots"));
    run(demo.tell(&mut tests))
}

fn command_at(program: &std::path::Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(root());
    command
}

/// A demo on free ports with data of its own; it ends when this is dropped.
struct Demo {
    process: Child,
    program: PathBuf,
    data: PathBuf,
    /// Its first line of output, whose texts become environment variables.
    facts: HashMap<String, String>,
}

impl Demo {
    /// Starts `forebay demo --json` and waits for the line that says where it is.
    fn start(profile: Profile) -> Done<Self> {
        let folder = match profile {
            Profile::Debug => "debug",
            Profile::Release => "release",
        };
        let data = root().join("target").join(format!("demo-{folder}-{}", std::process::id()));
        std::fs::create_dir_all(&data)?;
        let program = root().join("target").join(folder).join("forebay");
        let mut process = command_at(&program)
            .args(["demo", "--json", "--traffic", "0", "--simulator-addr", "127.0.0.1:0"])
            .env("FOREBAY_ADDR", "127.0.0.1:0")
            .env("FOREBAY_DATA_DIR", &data)
            .stdout(Stdio::piped())
            .spawn()?;
        let stdout = process.stdout.take();
        let mut demo = Self { process, program, data, facts: HashMap::new() };
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || {
            let lines =
                stdout.into_iter().flat_map(|stdout| BufReader::new(stdout).lines()).map_while(Result::ok);
            // Goes on reading after the first line, so that the demo never waits for us.
            for line in lines {
                let _ = sender.send(line);
            }
        });
        let line = receiver.recv_timeout(DEMO_READY).map_err(|_| "forebay demo did not say where it is")?;
        demo.facts = facts(&line);
        if demo.facts.contains_key("url") {
            Ok(demo)
        } else {
            Err(format!("forebay demo --json said `{line}`, which names no url").into())
        }
    }

    /// A token of its operator, made as the command line makes it.
    fn operator_token(&self) -> Done<String> {
        let admin = self.facts.get("admin").map_or("admin", String::as_str);
        let mut make = command_at(&self.program);
        make.args(["admin", "token", admin]).env("FOREBAY_DATA_DIR", &self.data).env("RUST_LOG", "error");
        let told = output(&mut make)?;
        told.lines().last().map(|line| line.trim().to_owned()).ok_or_else(|| "no token was printed".into())
    }

    /// Where it is and how to get in, for a test to read.
    fn tell<'a>(&self, test: &'a mut Command) -> &'a mut Command {
        for (fact, variable) in [
            ("url", "FOREBAY_BASE_URL"),
            ("admin", "FOREBAY_ADMIN_NAME"),
            ("password", "FOREBAY_ADMIN_PASSWORD"),
            ("token", "FOREBAY_CALLER_TOKEN"),
            ("simulator", "FOREBAY_SIMULATOR_URL"),
        ] {
            if let Some(value) = self.facts.get(fact) {
                test.env(variable, value);
            }
        }
        test
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        // Gone already is as good as stopped.
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.data);
    }
}

/// The texts of a flat JSON object. Values hold no escapes: they are addresses and tokens.
fn facts(line: &str) -> HashMap<String, String> {
    let words: Vec<_> = line.split('"').collect();
    let pairs = words.chunks(4).filter_map(|chunk| match chunk {
        [_, key, between, value] if between.trim() == ":" => Some((key.to_string(), value.to_string())),
        _ => None,
    });
    pairs.collect()
}

#[cfg(test)]
mod tests {
    use super::facts;

    #[test]
    fn the_demos_first_line_is_read() {
        let facts =
            facts(r#"{"url":"http://127.0.0.1:8080","admin": "admin", "password":"a-b", "token":"fb_1"}"#);
        assert_eq!(facts["url"], "http://127.0.0.1:8080");
        assert_eq!(facts["admin"], "admin");
        assert_eq!(facts["token"], "fb_1");
        assert_eq!(facts.len(), 4);
    }
}
