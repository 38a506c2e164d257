//! Runs a fuzz target on a stable compiler: mutates its seeds for so many seconds, and prints how many
//! inputs it stood, or the first that it did not.
//!
//! `cargo run --release -p forebay-wire --example soak_fuzz -- sse 60 [SEED]`
//! `cargo run -p forebay-wire --example soak_fuzz -- seeds fuzz/corpus` writes the seeds out for
//! libFuzzer: a folder a target.

use std::error::Error;
use std::panic::catch_unwind;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use forebay_wire::fuzz::{TARGETS, Target, seeds};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

/// The longest input, in bytes.
const LONGEST: usize = 8_192;
/// Pieces of the languages that the targets read.
const WORDS: [&[u8]; 44] = [
    b"{",
    b"}",
    b"[",
    b"]",
    b":",
    b",",
    b"\"",
    b"\\",
    b"\n",
    b"\r",
    b"\r\n",
    b"\n\n",
    b"data:",
    b"data: ",
    b"event: ",
    b": ",
    b"[DONE]",
    b"\xef\xbb\xbf",
    b"\xf0\x9f\x98\x80",
    b"\xff",
    b"\0",
    b"null",
    b"true",
    b"-1",
    b"0",
    b"1e999",
    b"18446744073709551615",
    b"-9223372036854775808",
    b".nan",
    b"\"error\":",
    b"\"code\":",
    b"\"message\":",
    b"\"type\":",
    b"\"details\":",
    b"\"output\":",
    b"${",
    b"}",
    b"&a ",
    b"*a",
    b"<<: ",
    b"!!str ",
    b"? ",
    b"- ",
    b"6m0s",
];

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let names = TARGETS.map(|(name, _)| name).join(" | ");
    let usage = format!("usage: soak_fuzz {names} SECONDS [SEED], or soak_fuzz seeds FOLDER");
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["seeds", folder] => write_seeds(Path::new(folder)).map(|()| ExitCode::SUCCESS),
        [name, seconds, rest @ ..] if rest.len() <= 1 => {
            let target = TARGETS.into_iter().find(|(known, _)| known == name).ok_or(usage)?;
            let seed = rest.first().map_or(Ok(1), |seed| seed.parse())?;
            Ok(soak(target, Duration::from_secs_f64(seconds.parse()?), seed))
        }
        _ => Err(usage.into()),
    }
}

fn write_seeds(folder: &Path) -> Result<(), Box<dyn Error>> {
    for (name, _) in TARGETS {
        let folder = folder.join(name);
        std::fs::create_dir_all(&folder)?;
        for (n, seed) in seeds(name).into_iter().enumerate() {
            std::fs::write(folder.join(format!("seed-{n:03}")), seed)?;
        }
    }
    Ok(())
}

fn soak((name, target): (&str, Target), time: Duration, seed: u64) -> ExitCode {
    std::panic::set_hook(Box::new(|_| {}));
    let mut random = StdRng::seed_from_u64(seed);
    let seeds = seeds(name);
    let begun = Instant::now();
    let mut executions = 0_u64;
    let mut slowest = (Duration::ZERO, Vec::new());
    while begun.elapsed() < time {
        let input = mutated(&seeds, &mut random);
        let started = Instant::now();
        if let Err(panic) = catch_unwind(|| target(&input)) {
            let said = panic.downcast_ref::<String>().map(String::as_str);
            let said = said.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("(no message)");
            println!("{name}: execution {executions} of seed {seed} panicked: {said}");
            println!("input: \"{}\"", input.escape_ascii());
            return ExitCode::FAILURE;
        }
        let took = started.elapsed();
        if took > slowest.0 {
            slowest = (took, input);
        }
        executions += 1;
    }
    let (took, input) = slowest;
    println!("{name}: {executions} executions in {:?}, seed {seed}, no panic", begun.elapsed());
    println!("slowest: {took:?} for {} bytes", input.len());
    ExitCode::SUCCESS
}

/// A seed with one to eight changes.
fn mutated(seeds: &[Vec<u8>], random: &mut StdRng) -> Vec<u8> {
    let mut input = seeds.choose(random).cloned().unwrap_or_default();
    for _ in 0..random.random_range(1..=8) {
        let at = random.random_range(0..=input.len());
        let end = (at + random.random_range(0..=32)).min(input.len());
        match random.random_range(0..7) {
            0 if at < input.len() => input[at] ^= 1 << random.random_range(0..8),
            1 if at < input.len() => input[at] = random.random(),
            2 => drop(input.drain(at..end)),
            3 => {
                let piece = input[at..end].repeat(random.random_range(1..=20));
                insert(&mut input, at, &piece);
            }
            4 => {
                let other = seeds.choose(random).map_or(&[][..], Vec::as_slice);
                let from = random.random_range(0..=other.len());
                insert(&mut input, at, &other[from..]);
            }
            5 => input.truncate(at),
            _ => insert(&mut input, at, WORDS.choose(random).copied().unwrap_or_default()),
        }
    }
    input.truncate(LONGEST);
    input
}

fn insert(input: &mut Vec<u8>, at: usize, piece: &[u8]) {
    input.splice(at..at, piece.iter().copied());
}
