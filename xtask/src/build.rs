//! The server, and the console's bundle: WebAssembly, its JavaScript, the styles, static files.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use lightningcss::bundler::{Bundler, FileProvider};
use lightningcss::stylesheet::{MinifyOptions, ParserOptions, PrinterOptions};
use sha2::{Digest, Sha256};
use wasm_bindgen_cli_support::Bindgen;

use crate::run::{Done, cargo, command, output, root, run, step, succeeds};
use crate::tools;

const WASM: &str = "wasm32-unknown-unknown";
const NAME: &str = "forebay";

/// Debian's own wasm-opt breaks the bundle, and `--all-features` makes one that browsers refuse.
const WASM_OPT: [&str; 10] = [
    "--flatten",
    "--rereloop",
    "-Oz",
    "-Oz",
    "--enable-bulk-memory",
    "--enable-nontrapping-float-to-int",
    "--enable-sign-ext",
    "--enable-mutable-globals",
    "--enable-reference-types",
    "--enable-multivalue",
];

/// How to build.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Profile {
    /// Quick to build.
    Debug,
    /// Quick to run, small to send.
    Release,
}

impl Profile {
    pub(crate) fn of(release: bool) -> Self {
        if release { Self::Release } else { Self::Debug }
    }

    fn wasm(self) -> &'static str {
        match self {
            Self::Debug => "wasm-dev",
            Self::Release => "wasm-release",
        }
    }
}

/// Everything that the server needs to run.
pub(crate) fn all(profile: Profile) -> Done {
    step("Server", || server(profile))?;
    site(profile)
}

/// `target/{debug,release}/forebay`.
fn server(profile: Profile) -> Done {
    let release = (profile == Profile::Release).then_some("--release");
    let arguments: Vec<_> = ["build", "-p", NAME, "--bin", NAME].into_iter().chain(release).collect();
    run(&mut cargo(&arguments))
}

/// `target/site`. It is put together beside the old one and then takes its place, so that a server
/// that runs meanwhile never finds half of it.
pub(crate) fn site(profile: Profile) -> Done {
    step("WebAssembly target", tools::wasm_target)?;
    let wasm = step("Console bundle", || compile_client(profile))?;
    let site = target().join("site");
    let next = target().join("site.next");
    if next.exists() {
        fs::remove_dir_all(&next)?;
    }
    let pkg = next.join("pkg");
    fs::create_dir_all(&pkg)?;
    step("JavaScript around it", || bindgen(profile, &wasm, &pkg))?;
    if profile == Profile::Release {
        step("Smaller WebAssembly", || wasm_opt(&pkg.join(format!("{NAME}.wasm"))))?;
    }
    step("Styles", || styles(&pkg))?;
    step("Names with hashes", || hash_names(&pkg))?;
    copy_folder(&root().join("public"), &next)?;
    if profile == Profile::Release {
        step("Compression", || compress(&pkg))?;
    }
    if site.exists() {
        fs::remove_dir_all(&site)?;
    }
    fs::rename(&next, &site)?;
    Ok(())
}

fn target() -> PathBuf {
    root().join("target")
}

fn compile_client(profile: Profile) -> Done<PathBuf> {
    let mut build = cargo(&["build", "-p", "forebay-client", "--target", WASM, "--profile", profile.wasm()]);
    if profile == Profile::Release {
        // Panic messages name source files: this machine's folders are nobody's business.
        let home =
            std::env::var("CARGO_HOME").or_else(|_| std::env::var("HOME").map(|home| home + "/.cargo"))?;
        let flags = format!("--cfg erase_components --remap-path-prefix={home}/registry/src/=");
        build.env("RUSTFLAGS", flags);
    }
    run(&mut build)?;
    Ok(target().join(WASM).join(profile.wasm()).join("forebay_client.wasm"))
}

fn bindgen(profile: Profile, wasm: &Path, pkg: &Path) -> Done {
    Bindgen::new()
        .input_path(wasm)
        .web(true)
        .and_then(|bindgen| {
            let names = profile == Profile::Debug;
            bindgen.out_name(NAME).typescript(false).remove_name_section(!names).generate(pkg)
        })
        .map_err(|error| format!("wasm-bindgen: {error:#}"))?;
    // The name that a server compiled with LEPTOS_OUTPUT_NAME asks for.
    fs::rename(pkg.join(format!("{NAME}_bg.wasm")), pkg.join(format!("{NAME}.wasm")))?;
    Ok(())
}

/// Halves the bundle. Without npm it is only larger, not wrong.
fn wasm_opt(wasm: &Path) -> Done {
    if !succeeds(&mut command("npm", &["--version"])) {
        eprintln!("    npm is not here: the bundle stays about twice as large as it could be.");
        return Ok(());
    }
    let tools = root().join("xtask/wasm-opt");
    let binary = tools.join("node_modules/binaryen/bin/wasm-opt");
    if !binary.exists() {
        run(command("npm", &["ci", "--no-audit", "--no-fund"]).current_dir(&tools))?;
    }
    let before = fs::metadata(wasm)?.len();
    let mut optimise = command("node", &[]);
    optimise.arg(&binary).arg(wasm).args(WASM_OPT).arg("-o").arg(wasm);
    output(&mut optimise)?;
    eprintln!("    {} KB before, {} KB after", before / 1_024, fs::metadata(wasm)?.len() / 1_024);
    Ok(())
}

fn styles(pkg: &Path) -> Done {
    let entry = root().join("style/main.css");
    let files = FileProvider::new();
    let mut styles = Bundler::new(&files, None, ParserOptions::default())
        .bundle(&entry)
        .map_err(|error| format!("styles: {error}"))?;
    styles.minify(MinifyOptions::default()).map_err(|error| format!("styles: {error}"))?;
    let css = styles
        .to_css(PrinterOptions { minify: true, ..PrinterOptions::default() })
        .map_err(|error| format!("styles: {error}"))?;
    fs::write(pkg.join(format!("{NAME}.css")), css.code)?;
    Ok(())
}

/// Puts a hash of its content into the name of each file, so that browsers may keep it for good,
/// and writes `hash.txt`, by which the server knows the names.
fn hash_names(pkg: &Path) -> Done {
    let mut list = String::new();
    for kind in ["css", "js", "wasm"] {
        let plain = pkg.join(format!("{NAME}.{kind}"));
        let digest = Sha256::digest(fs::read(&plain)?);
        let hash: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        fs::rename(&plain, pkg.join(format!("{NAME}.{hash}.{kind}")))?;
        list.push_str(&format!("{kind}: {hash}\n"));
    }
    fs::write(pkg.join("hash.txt"), list)?;
    Ok(())
}

/// Beside each file its brotli and gzip form, and on the screen what they weigh.
fn compress(pkg: &Path) -> Done {
    for entry in fs::read_dir(pkg)? {
        let path = entry?.path();
        let Some(extension) = path.extension().and_then(|e| e.to_str()).map(str::to_owned) else {
            continue;
        };
        if !["css", "js", "wasm"].contains(&extension.as_str()) {
            continue;
        }
        let plain = fs::read(&path)?;
        let parameters = brotli::enc::BrotliEncoderParams { quality: 11, ..Default::default() };
        let mut small = Vec::new();
        brotli::BrotliCompress(&mut plain.as_slice(), &mut small, &parameters)?;
        fs::write(path.with_extension(format!("{extension}.br")), &small)?;
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        gzip.write_all(&plain)?;
        fs::write(path.with_extension(format!("{extension}.gz")), gzip.finish()?)?;
        eprintln!(
            "    {extension}: {} KB, {:.1} KB with brotli",
            plain.len() / 1_024,
            small.len() as f64 / 1_024.0
        );
    }
    Ok(())
}

fn copy_folder(from: &Path, to: &Path) -> Done {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type()?.is_dir() {
            copy_folder(&from, &to)?;
        } else {
            fs::copy(&from, &to)?;
        }
    }
    Ok(())
}
