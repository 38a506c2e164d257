//! The Idempotency-Key, and the hash of what was asked with it.

use axum::http::HeaderMap;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::exchange::{FilePart, FileSource};
use crate::gateway::error::ApiError;

/// The longest key, in characters.
const LONGEST_KEY: usize = 255;

/// A key with the hash of its request: the endpoint, the parsed fields and the files' contents. Not the
/// raw bytes: a form has a new boundary each time.
pub(super) fn key_and_hash(
    headers: &HeaderMap,
    endpoint: &str,
    body: &Map<String, Value>,
    files: &[FilePart],
) -> Result<Option<(String, String)>, ApiError> {
    let Some(key) = headers.get("idempotency-key") else { return Ok(None) };
    let key = key.to_str().ok().filter(|key| (1..=LONGEST_KEY).contains(&key.chars().count()));
    let key =
        key.ok_or_else(|| ApiError::invalid("Idempotency-Key", "must be 1 to 255 visible characters"))?;
    let mut hash = Sha256::new();
    hash.update(endpoint);
    hash_fields(&mut hash, body);
    for file in files {
        hash.update(Value::String(file.name.clone()).to_string());
        match &file.source {
            FileSource::Bytes { bytes, .. } => {
                hash.update((bytes.len() as u64).to_le_bytes());
                hash.update(bytes);
            }
            FileSource::Url(url) => hash.update(Value::String(url.clone()).to_string()),
        }
    }
    Ok(Some((key.to_owned(), format!("{:x}", hash.finalize()))))
}

/// White space and the order of fields make no other request.
fn hash_fields(hash: &mut Sha256, fields: &Map<String, Value>) {
    let mut names: Vec<_> = fields.keys().collect();
    names.sort_unstable();
    hash.update(b"{");
    for name in names {
        hash.update(Value::String(name.clone()).to_string());
        hash_value(hash, &fields[name]);
    }
    hash.update(b"}");
}

fn hash_value(hash: &mut Sha256, value: &Value) {
    match value {
        Value::Object(fields) => hash_fields(hash, fields),
        Value::Array(list) => {
            hash.update(b"[");
            list.iter().for_each(|value| hash_value(hash, value));
            hash.update(b"]");
        }
        simple => hash.update(format!("{simple},")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn hash(body: &Value, files: &[FilePart]) -> String {
        let mut headers = HeaderMap::new();
        headers.insert("idempotency-key", "k".parse().expect("a header"));
        let fields = body.as_object().expect("an object");
        key_and_hash(&headers, "/x", fields, files).expect("a key").expect("a hash").1
    }

    #[test]
    fn the_order_of_fields_makes_no_other_request_and_any_value_does() {
        let one = json!({"model": "m", "messages": [{"role": "user", "content": "hi"}], "n": 1});
        let same = json!({"n": 1, "messages": [{"content": "hi", "role": "user"}], "model": "m"});
        assert_eq!(hash(&one, &[]), hash(&same, &[]));
        for other in [
            json!({"model": "m", "messages": [{"role": "user", "content": "hi"}], "n": 2}),
            json!({"model": "m", "messages": [{"role": "user", "content": "ho"}], "n": 1}),
            json!({"model": "m", "messages": [[{"role": "user", "content": "hi"}]], "n": 1}),
        ] {
            assert_ne!(hash(&one, &[]), hash(&other, &[]));
        }
    }

    #[test]
    fn a_files_content_is_part_of_the_request_and_its_name_on_disk_is_not() {
        let file = |file_name: &str, bytes: &'static [u8]| {
            [FilePart {
                name: "file".into(),
                source: FileSource::Bytes {
                    file_name: file_name.into(),
                    content_type: "audio/wav".into(),
                    bytes: bytes.into(),
                },
            }]
        };
        let body = json!({"model": "m"});
        assert_eq!(hash(&body, &file("a.wav", b"one")), hash(&body, &file("b.wav", b"one")));
        assert_ne!(hash(&body, &file("a.wav", b"one")), hash(&body, &file("a.wav", b"two")));
        assert_ne!(hash(&body, &file("a.wav", b"one")), hash(&body, &[]));
    }
}
