//! Volcengine Ark: images with fields of its own, and Volcengine's speech API.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use forebay_engine::{Class, Failure};
use forebay_wire::classify::classify_inside;
use serde_json::{Map, Value, json};

use super::call::{Call, Scheme, Secret};
use super::openai::voice;
use crate::catalog::ModelTarget;
use crate::exchange::Ask;

/// Below the speech API's base URL.
pub(super) const SPEECH_PATH: &str = "tts";
/// The cluster that serves ordinary voices.
const CLUSTER: &str = "volcano_tts";
/// The code of a speech answer that holds speech.
const SPOKEN: i64 = 3_000;

/// OpenAI's fields → Ark's: several images are a sequence, reference images go along as URLs, and a
/// resolution stands for the size.
pub(super) fn image(model: &ModelTarget, ask: &Ask) -> Call {
    let mut body = Map::new();
    body.insert("model".into(), json!(model.upstream_model));
    for (name, value) in &*ask.input {
        match name.as_str() {
            "n" => {
                if let Some(count) = value.as_u64().filter(|count| *count > 1) {
                    body.insert("sequential_image_generation".into(), "auto".into());
                    body.insert("sequential_image_generation_options".into(), json!({"max_images": count}));
                }
            }
            "resolution" => drop(body.entry("size").or_insert_with(|| value.clone())),
            "image" | "mask" | "user" | "quality" | "style" | "background" => {}
            _ => drop(body.insert(name.clone(), value.clone())),
        }
    }
    let images: Vec<String> =
        ask.files.iter().filter(|file| file.name == "image").map(|file| file.source.to_url()).collect();
    match images.as_slice() {
        [] => {}
        [one] => drop(body.insert("image".into(), one.as_str().into())),
        several => drop(body.insert("image".into(), json!(several))),
    }
    Call::json(Value::Object(body).to_string().into())
}

/// OpenAI's speech fields → the speech API's. The account's key is `APPID:TOKEN`.
pub(super) fn speech(model: &ModelTarget, ask: &Ask, secret: &Secret) -> Result<Call, Failure> {
    let (app, _) = secret.expose().split_once(':').ok_or_else(|| {
        Failure::new(Class::Auth, "the account's key must be APPID:TOKEN for Volcengine's speech API")
    })?;
    let text = ask.input.get("input").and_then(Value::as_str).unwrap_or_default();
    let encoding = match ask.input.get("response_format").and_then(Value::as_str) {
        Some("opus") => "ogg_opus",
        Some(format @ ("wav" | "pcm")) => format,
        _ => "mp3",
    };
    let asked = ask.input.get("voice").and_then(Value::as_str).unwrap_or_default();
    let body = json!({
        // The token travels in the header; the body only has to hold one that is not empty.
        "app": {"appid": app, "token": "in-header", "cluster": CLUSTER},
        "user": {"uid": "forebay"},
        "audio": {"voice_type": voice(model, asked), "encoding": encoding,
                  "speed_ratio": ask.input.get("speed").and_then(Value::as_f64).unwrap_or(1.0)},
        "request": {"reqid": uuid::Uuid::now_v7().to_string(), "text": text, "operation": "query"},
    });
    Ok(Call {
        scheme: Scheme::BearerSemicolon,
        content_type: Cow::Borrowed("application/json"),
        ..Call::json(body.to_string().into())
    })
}

/// The speech inside the speech API's answer.
pub(super) fn spoken(body: &Value) -> Result<Bytes, Failure> {
    let code = body.get("code").and_then(Value::as_i64);
    let data = body.get("data").and_then(Value::as_str).filter(|data| !data.is_empty());
    match (code, data) {
        (None | Some(SPOKEN), Some(data)) => STANDARD
            .decode(data)
            .map(Into::into)
            .map_err(|_| Failure::new(Class::Unknown, "speech whose base64 is broken")),
        _ => Err(classify_inside(body)
            .unwrap_or_else(|| Failure::new(Class::Unknown, "an answer with neither speech nor an error"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speech_is_unwrapped_and_its_absence_understood() {
        assert_eq!(
            spoken(&json!({"code": 3000, "data": "AQID"})).expect("speech"),
            Bytes::from_static(&[1, 2, 3])
        );
        assert_eq!(spoken(&json!({"code": 3000})).expect_err("no speech").class, Class::Unknown);
        assert_eq!(spoken(&json!({})).expect_err("nothing").class, Class::Unknown);
        assert_eq!(
            spoken(&json!({"code": 3003, "message": "concurrency"})).expect_err("refused").class,
            Class::RateLimited
        );
    }
}
