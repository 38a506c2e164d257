//! Which part may know which: the directions of the layout, kept true.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Parts of `src` that never know each other; `lib.rs` wires them.
const STRANGERS: [&str; 5] = ["gateway", "admin", "upstream", "store", "shared"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    entries
        .map(|entry| entry.expect("a readable folder").path())
        .flat_map(|path| {
            if path.is_dir() {
                rust_files(&path)
            } else {
                vec![path]
                    .into_iter()
                    .filter(|path| path.extension().is_some_and(|end| end == "rs"))
                    .collect()
            }
        })
        .collect()
}

/// The crates that each of our crates is built from, by name.
fn dependencies(of: &str) -> BTreeSet<String> {
    let metadata = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version", "1", "--offline"])
        .current_dir(root())
        .output()
        .expect("cargo metadata runs");
    let metadata: Value = serde_json::from_slice(&metadata.stdout).expect("it writes JSON");
    let packages = metadata["packages"].as_array().expect("packages");
    let package = packages.iter().find(|package| package["name"] == of).expect("a package of that name");
    let dependencies = package["dependencies"].as_array().expect("dependencies");
    let kept = dependencies.iter().filter(|dependency| dependency["kind"].is_null());
    kept.map(|dependency| dependency["name"].as_str().expect("a name").to_owned()).collect()
}

#[test]
fn the_engine_knows_no_http_no_sql_no_serde_and_no_leptos() {
    let allowed = ["loom", "rand", "thiserror", "tokio"].map(str::to_owned).into();
    let engine = dependencies("forebay-engine");
    assert!(engine.is_subset(&allowed), "{:?}", engine.difference(&allowed));
}

#[test]
fn wire_is_light_and_knows_the_engines_outcomes_at_most() {
    let allowed = ["forebay-engine", "jiff", "serde", "serde_json", "serde_yaml_ng", "thiserror"]
        .map(str::to_owned)
        .into();
    let wire = dependencies("forebay-wire");
    assert!(wire.is_subset(&allowed), "{:?}", wire.difference(&allowed));
}

#[test]
fn the_console_knows_neither_the_engine_nor_the_server() {
    for console in ["forebay-app", "forebay-client"] {
        let known = dependencies(console);
        for stranger in ["forebay-engine", "forebay-wire", "forebay", "sqlx", "reqwest"] {
            assert!(!known.contains(stranger), "{console} depends on {stranger}");
        }
    }
}

#[test]
fn parts_of_the_server_that_are_strangers_stay_strangers() {
    for part in STRANGERS {
        for file in rust_files(&root().join("src").join(part)) {
            let text = std::fs::read_to_string(&file).expect("a source file");
            for other in STRANGERS.into_iter().filter(|other| *other != part) {
                let uses = text.lines().find(|line| {
                    let line = line.trim_start();
                    !line.starts_with("//") && line.contains(&format!("crate::{other}"))
                });
                assert_eq!(uses, None, "{} knows {other}", file.display());
            }
        }
    }
}

#[test]
fn nothing_below_the_composition_knows_it() {
    let composition = ["crate::Server", "crate::Outside", "crate::demo"];
    for file in rust_files(&root().join("src")) {
        let name =
            file.strip_prefix(root().join("src")).expect("it is inside").to_string_lossy().into_owned();
        if name.starts_with("tests/") || ["lib.rs", "main.rs", "demo.rs"].contains(&name.as_str()) {
            continue;
        }
        let text = std::fs::read_to_string(&file).expect("a source file");
        for part in composition {
            assert!(!text.contains(part), "{name} knows {part}");
        }
    }
}
