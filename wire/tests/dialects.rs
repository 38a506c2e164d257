//! The error dialects, as recorded in `fixtures/`: each body has its class, and each dialect has a body
//! for each class that it can express.

use std::collections::BTreeMap;

use forebay_engine::Class;
use forebay_wire::classify::{classify, classify_inside};
use forebay_wire::retry_after::retry_after;
use serde::Deserialize;
use serde_json::Value;

const DIALECTS: [(&str, &str); 8] = [
    ("openai", include_str!("../fixtures/openai.json")),
    ("anthropic", include_str!("../fixtures/anthropic.json")),
    ("volcengine_ark", include_str!("../fixtures/volcengine_ark.json")),
    ("volcengine_speech", include_str!("../fixtures/volcengine_speech.json")),
    ("dashscope", include_str!("../fixtures/dashscope.json")),
    ("siliconflow", include_str!("../fixtures/siliconflow.json")),
    ("google", include_str!("../fixtures/google.json")),
    ("ollama", include_str!("../fixtures/ollama.json")),
];

/// What an error body can say. The others come from the connection (`not_sent`, cuts) or from an answer
/// that answers nothing (`bad_answer`).
const SAID: [Class; 8] = [
    Class::RateLimited,
    Class::Auth,
    Class::Quota,
    Class::Misconfigured,
    Class::Upstream,
    Class::Unknown,
    Class::Request,
    Class::Policy,
];

/// A line of a fixture file.
#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    /// Classes that the dialect has no words for.
    Cannot { cannot: Vec<String>, why: String },
    /// An answer, and what it means. Boxed, for it is much the larger.
    Said(Box<Said>),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Said {
    what: String,
    status: u16,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    body: Value,
    class: String,
    #[serde(default)]
    retry_after_ms: Option<u64>,
    #[serde(default)]
    param: Option<String>,
    #[serde(default)]
    exceeds_context: bool,
}

fn lines(file: &str) -> Vec<Line> {
    serde_json::from_str(file).expect("a fixture file is a list of fixtures")
}

#[test]
fn each_recorded_body_has_its_class() {
    let now = "2026-01-02T03:04:05Z".parse().expect("a timestamp");
    let mut wrong = Vec::new();
    for (dialect, file) in DIALECTS {
        for line in lines(file) {
            let Line::Said(said) = line else { continue };
            let header = |name: &str| said.headers.get(name).map(String::as_str);
            let found = match said.status {
                200 => classify_inside(&said.body),
                status => Some(classify(status, &said.body)),
            };
            let Some(found) = found else {
                wrong.push(format!("{dialect}: {}: found no error", said.what));
                continue;
            };
            let after = retry_after(header, &said.body, now).map(|after| after.as_millis() as u64);
            let found = (found.class.as_str(), after, found.param, found.exceeds_context, found.http_status);
            let right =
                (&*said.class, said.retry_after_ms, said.param, said.exceeds_context, Some(said.status));
            if found != right {
                wrong.push(format!("{dialect}: {}:\n  found {found:?}\n  not   {right:?}", said.what));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn each_dialect_speaks_of_each_class_that_it_can() {
    for (dialect, file) in DIALECTS {
        let mut said = Vec::new();
        let mut unsaid = Vec::new();
        for line in lines(file) {
            match line {
                Line::Said(line) => said.push(line.class),
                Line::Cannot { cannot, why } => {
                    assert!(!why.is_empty(), "{dialect} says why");
                    unsaid.extend(cannot);
                }
            }
        }
        for class in SAID.map(Class::as_str) {
            let is_said = said.iter().any(|known| known == class);
            let is_unsaid = unsaid.iter().any(|known| known == class);
            assert!(is_said != is_unsaid, "{dialect}: {class}: a fixture or a reason, and not both");
        }
    }
}

#[test]
fn no_success_is_taken_for_an_error() {
    #[derive(Deserialize)]
    struct Success {
        what: String,
        body: Value,
    }
    let successes: Vec<Success> =
        serde_json::from_str(include_str!("../fixtures/successes.json")).expect("a list of successes");
    for Success { what, body } in successes {
        assert_eq!(classify_inside(&body), None, "{what}");
    }
}
