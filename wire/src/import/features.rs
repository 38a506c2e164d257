//! What a model declares that it can do: the shape of each feature.

use serde_json::{Map, Value};

use super::values::{flag, text, whole};

/// A part of a field that can't be taken, and what would be right; the part is empty for the whole field.
pub(super) type Fault = (String, String);

const FLAGS: [&str; 7] = ["stream", "tools", "structured", "thinking", "vision", "image_edit", "prefill"];
const COUNTS: [&str; 2] = ["max_context", "max_output"];
const LISTS: [&str; 2] = ["ratios", "resolutions"];
/// Names that a caller may say; more than this is a mistake.
const LONGEST_LIST: usize = 1_000;

/// The features as JSON, in the order of their names.
pub(super) fn features(value: &Value) -> Result<String, Vec<Fault>> {
    let given = match value {
        Value::Null => return Ok("{}".into()),
        Value::Object(given) => given,
        _ => return Err(vec![(String::new(), "must be a map of features".into())]),
    };
    let mut features = Map::new();
    let mut faults = Vec::new();
    for (name, value) in given {
        match feature(name, value) {
            Ok(checked) => drop(features.insert(name.clone(), checked)),
            Err(remedy) => faults.push((name.clone(), remedy)),
        }
    }
    features.sort_keys();
    if faults.is_empty() { Ok(Value::Object(features).to_string()) } else { Err(faults) }
}

fn feature(name: &str, value: &Value) -> Result<Value, String> {
    match name {
        _ if FLAGS.contains(&name) => flag(value).map(Value::Bool),
        _ if COUNTS.contains(&name) => whole(value, 1, i64::MAX).map(Value::from),
        _ if LISTS.contains(&name) => list(value, "must be a list of texts: [\"16:9\", \"1:1\"]", named),
        "durations" => {
            let remedy = "must be a list of whole seconds: [5, 10]";
            list(value, remedy, |value| whole(value, 1, 86_400).map(Value::from))
        }
        "max_references" => max_references(value),
        "voices" => voices(value),
        _ => {
            let known = [&FLAGS[..], &COUNTS, &LISTS, &["durations", "max_references", "voices"]].concat();
            Err(format!("is no feature; features are {}", known.join(", ")))
        }
    }
}

fn list(
    value: &Value,
    remedy: &str,
    item: impl Fn(&Value) -> Result<Value, String>,
) -> Result<Value, String> {
    let items = value.as_array().filter(|items| items.len() <= LONGEST_LIST).ok_or(remedy)?;
    items.iter().map(|value| item(value).map_err(|_| remedy.to_owned())).collect()
}

/// A number for materials of every kind, or one a kind: `{image: 9, video: 3}`.
fn max_references(value: &Value) -> Result<Value, String> {
    const REMEDY: &str = "must be a whole number, or one a kind of material: {image: 9, video: 3}";
    let count = |value: &Value| whole(value, 0, 10_000).map(Value::from).map_err(|_| REMEDY.to_owned());
    match value {
        Value::Object(kinds) => kinds
            .iter()
            .map(|(kind, value)| Ok((named(&kind.as_str().into()).map(|_| kind.clone())?, count(value)?)))
            .collect::<Result<Map<_, _>, String>>()
            .map(Value::Object),
        value => count(value),
    }
}

/// What callers may ask for → what the upstream calls it.
fn voices(value: &Value) -> Result<Value, String> {
    const REMEDY: &str = "must be a map of voices: {alloy: zh_female_1}";
    let voices = value.as_object().ok_or(REMEDY)?;
    let pairs = voices.iter().map(|(public, upstream)| {
        named(&public.as_str().into()).map_err(|_| REMEDY.to_owned())?;
        Ok((public.clone(), named(upstream).map_err(|_| format!("{REMEDY}; {public} is none"))?))
    });
    pairs.collect::<Result<Map<_, _>, String>>().map(Value::Object)
}

/// A text with something in it.
fn named(value: &Value) -> Result<Value, String> {
    match text(value, 256)? {
        name if name.trim().is_empty() => Err("must not be empty".into()),
        name => Ok(name.into()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_feature_has_its_shape() {
        let all = json!({
            "stream": true, "tools": 0, "max_context": 128_000, "ratios": ["16:9", "1:1"], "resolutions": [],
            "durations": [5, "10"], "max_references": {"image": 9, "video": 0},
            "voices": {"alloy": "zh_female_1"}, "prefill": false,
        });
        let expected = r#"{"durations":[5,10],"max_context":128000,"max_references":{"image":9,"video":0},"prefill":false,"ratios":["16:9","1:1"],"resolutions":[],"stream":true,"tools":false,"voices":{"alloy":"zh_female_1"}}"#;
        assert_eq!(features(&all).as_deref(), Ok(expected));
        assert_eq!(features(&json!({"max_references": 4})).as_deref(), Ok(r#"{"max_references":4}"#));
        assert_eq!(features(&Value::Null).as_deref(), Ok("{}"));
    }

    #[test]
    fn what_has_another_shape_is_refused_by_name() {
        let wrong = [
            ("stream", json!("yes")),
            ("max_output", json!(0)),
            ("ratios", json!("16:9")),
            ("ratios", json!([""])),
            ("resolutions", json!([["720p"]])),
            ("durations", json!([5.5])),
            ("durations", json!([0])),
            ("durations", json!(["5s"])),
            ("max_references", json!(-1)),
            ("max_references", json!({"image": "many"})),
            ("max_references", json!([1])),
            ("voices", json!(["alloy"])),
            ("voices", json!({"alloy": null})),
            ("voices", json!({"": "x"})),
            ("colours", json!(true)),
        ];
        for (name, value) in wrong {
            let faults = features(&json!({ name: value })).expect_err(name);
            assert_eq!(faults.len(), 1, "{name}");
            assert_eq!(faults[0].0, name);
        }
        let many = features(&json!({"stream": 2, "ratios": 1, "zz": 1})).expect_err("three mistakes");
        assert_eq!(
            many.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(),
            ["stream", "ratios", "zz"]
        );
    }
}
