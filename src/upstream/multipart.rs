//! `multipart/form-data` as it goes upstream.

use std::borrow::Cow;

use bytes::{BufMut, Bytes, BytesMut};
use serde_json::{Map, Value};

use super::call::Call;
use super::files::File;

/// A form of `model`, the fields of `input` and `files`. A list is a field for each of its values, and
/// an object is its JSON.
pub(super) fn form(model: &str, input: &Map<String, Value>, files: &[File]) -> Call {
    let boundary = format!("forebay-{}", uuid::Uuid::new_v4().simple());
    let size: usize = files.iter().map(|file| file.bytes.len() + 256).sum();
    let mut body = BytesMut::with_capacity(size + 1_024);
    let mut field = |name: &str, value: &str| {
        body.put_slice(format!("--{boundary}\r\nContent-Disposition: form-data; name=\"{}\"\r\n\r\n{value}\r\n", quoted(name)).as_bytes());
    };
    field("model", model);
    for (name, value) in input {
        match value {
            Value::Null => {}
            Value::Array(list) => {
                let name = format!("{}[]", name.trim_end_matches("[]"));
                list.iter().for_each(|value| field(&name, &plain(value)));
            }
            value => field(name, &plain(value)),
        }
    }
    for file in files {
        let head = format!(
            "--{boundary}\r\nContent-Disposition: form-data; name=\"{}\"; filename=\"{}\"\r\nContent-Type: {}\r\n\r\n",
            quoted(&file.name),
            quoted(&file.file_name),
            file.content_type
        );
        body.put_slice(head.as_bytes());
        body.put_slice(&file.bytes);
        body.put_slice(b"\r\n");
    }
    body.put_slice(format!("--{boundary}--\r\n").as_bytes());
    let content_type = Cow::Owned(format!("multipart/form-data; boundary={boundary}"));
    Call { content_type, ..Call::json(body.freeze()) }
}

fn plain(value: &Value) -> Cow<'_, str> {
    match value {
        Value::String(text) => Cow::Borrowed(text),
        value => Cow::Owned(value.to_string()),
    }
}

/// As browsers write a name: what would end it is percent-encoded.
fn quoted(text: &str) -> String {
    text.replace('"', "%22").replace('\r', "%0D").replace('\n', "%0A")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_form_has_its_fields_its_lists_and_its_files() {
        let file = File {
            name: "image".into(),
            file_name: "a\"b.png".into(),
            content_type: "image/png".into(),
            bytes: Bytes::from_static(b"\x89PNG"),
        };
        let input = json!({"prompt": "a cat", "n": 2, "tags": ["a", "b"], "nothing": null});
        let call = form("m", input.as_object().expect("an object"), &[file]);
        let boundary = call.content_type.strip_prefix("multipart/form-data; boundary=").expect("a boundary");
        let body = String::from_utf8_lossy(&call.body).into_owned();
        assert_eq!(body.matches(&format!("--{boundary}\r\n")).count(), 6);
        assert!(body.ends_with(&format!("--{boundary}--\r\n")));
        for part in [
            "name=\"model\"\r\n\r\nm\r\n",
            "name=\"prompt\"\r\n\r\na cat\r\n",
            "name=\"n\"\r\n\r\n2\r\n",
            "name=\"tags[]\"\r\n\r\nb\r\n",
            "filename=\"a%22b.png\"\r\nContent-Type: image/png\r\n\r\n",
        ] {
            assert!(body.contains(part), "{part}");
        }
    }
}
