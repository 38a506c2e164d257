//! `multipart/form-data` as it goes upstream.

use std::borrow::Cow;

use bytes::{BufMut, BytesMut};
use forebay_engine::{Class, Failure};
use futures::TryStreamExt;
use reqwest::multipart::{Form, Part};
use serde_json::{Map, Value};

use super::call::Call;
use super::files::File;

/// A form of `model`, the fields of `input` and `files`. A list is a field for each of its values, and
/// an object is its JSON.
pub(super) async fn form(model: &str, input: &Map<String, Value>, files: Vec<File>) -> Result<Call, Failure> {
    let mut form = Form::new().text("model", model.to_owned());
    for (name, value) in input {
        match value {
            Value::Null => {}
            Value::Array(list) => {
                for value in list {
                    form = form.text(format!("{name}[]"), plain(value));
                }
            }
            value => form = form.text(name.clone(), plain(value)),
        }
    }
    for File { name, file_name, content_type, bytes } in files {
        let part = Part::stream(bytes).file_name(file_name);
        let part = part.mime_str(&content_type).map_err(|_| Failure {
            param: Some(name.clone()),
            ..Failure::new(Class::Request, format!("{name}: '{content_type}' is no content type"))
        })?;
        form = form.part(name, part);
    }
    let content_type = Cow::Owned(format!("multipart/form-data; boundary={}", form.boundary()));
    // Everything in it is here already: no piece can fail.
    let collect = form.into_stream().try_fold(BytesMut::new(), async |mut whole, piece| {
        whole.put(piece);
        Ok(whole)
    });
    let body = collect.await.map_err(|error| Failure::new(Class::NotSent, error.to_string()))?;
    Ok(Call { content_type, ..Call::json(body.freeze()) })
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use serde_json::json;

    use super::*;

    fn file(content_type: &str) -> File {
        File {
            name: "image".into(),
            file_name: "a.png".into(),
            content_type: content_type.into(),
            bytes: Bytes::from_static(b"\x89PNG"),
        }
    }

    #[tokio::test]
    async fn a_form_has_its_fields_its_lists_and_its_files() {
        let input = json!({"prompt": "a cat", "n": 2, "tags": ["a", "b"], "nothing": null});
        let input = input.as_object().expect("an object");
        let call = form("m", input, vec![file("image/png")]).await.expect("a form");
        let boundary = call.content_type.strip_prefix("multipart/form-data; boundary=").expect("a boundary");
        let body = String::from_utf8_lossy(&call.body).into_owned();
        assert_eq!(body.matches(&format!("--{boundary}\r\n")).count(), 6);
        for part in
            ["name=\"model\"", "a cat", "name=\"n\"", "filename=\"a.png\"", "Content-Type: image/png", "PNG"]
        {
            assert!(body.contains(part), "{part} in {body}");
        }
        assert!(!body.contains("nothing"));
        let wrong = form("m", input, vec![file("no type")]).await.expect_err("no content type");
        assert_eq!((wrong.class, wrong.param.as_deref()), (Class::Request, Some("image")));
    }
}
