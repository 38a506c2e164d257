//! A request's body: JSON, or a form with files, read whole within a size and a time.

use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, StatusCode, header};
use bytes::Bytes;
use multer::Multipart;
use serde_json::{Map, Value};

use super::fields::Place;
use crate::exchange::{FilePart, FileSource};
use crate::gateway::error::ApiError;

/// A body must have arrived within this.
const BODY_TIME: Duration = Duration::from_secs(60);
/// Parts that a form may have.
const MOST_PARTS: usize = 128;

/// A body's fields and files.
#[derive(Debug)]
pub(crate) struct RequestBody {
    pub(crate) fields: Map<String, Value>,
    pub(crate) files: Vec<FilePart>,
    pub(crate) place: Place,
}

/// Reads a body of at most `limit` bytes: a form where it says that it is one, else JSON.
pub(crate) async fn read(headers: &HeaderMap, body: Body, limit: usize) -> Result<RequestBody, ApiError> {
    let bytes = read_bytes(body, limit).await?;
    let content_type =
        headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if content_type.starts_with("multipart/form-data") {
        return read_form(content_type, bytes).await;
    }
    match serde_json::from_slice(&bytes) {
        Ok(Value::Object(fields)) => Ok(RequestBody { fields, files: Vec::new(), place: Place::Body }),
        Ok(_) => Err(ApiError::invalid("body", "must be a JSON object")),
        Err(error) => Err(ApiError::invalid("body", &format!("is not JSON: {error}"))),
    }
}

async fn read_bytes(body: Body, limit: usize) -> Result<Bytes, ApiError> {
    // What is announced as too large need not be sent.
    if http_body::Body::size_hint(&body).lower() > limit as u64 {
        return Err(ApiError::too_large(limit));
    }
    let read = tokio::time::timeout(BODY_TIME, axum::body::to_bytes(body, limit)).await;
    let read = read.map_err(|_| {
        let message = format!("the body did not arrive within {} s", BODY_TIME.as_secs());
        ApiError::new(StatusCode::REQUEST_TIMEOUT, "invalid_request", message)
    })?;
    read.map_err(|error| {
        let too_large = std::error::Error::source(&error)
            .is_some_and(|source| source.is::<http_body_util::LengthLimitError>());
        if too_large { ApiError::too_large(limit) } else { ApiError::invalid("body", "ended too soon") }
    })
}

/// A field that comes several times, or whose name ends in `[]`, is a list. Numbers stay texts: who
/// checks a field knows what it is.
async fn read_form(content_type: &str, bytes: Bytes) -> Result<RequestBody, ApiError> {
    let broken = |error: String| ApiError::invalid("body", &format!("is no form that can be read: {error}"));
    let boundary = multer::parse_boundary(content_type).map_err(|error| broken(error.to_string()))?;
    // The whole body is here, and within its limit.
    let whole = futures::stream::iter([Ok::<_, std::convert::Infallible>(bytes)]);
    let mut form = Multipart::new(whole, boundary);
    let mut read = RequestBody { fields: Map::new(), files: Vec::new(), place: Place::Form };
    let mut parts = 0;
    while let Some(part) = form.next_field().await.map_err(|error| broken(error.to_string()))? {
        parts += 1;
        if parts > MOST_PARTS {
            return Err(broken(format!("more than {MOST_PARTS} parts")));
        }
        let name = part.name().unwrap_or_default().to_owned();
        if name.is_empty() {
            return Err(broken("a part has no name".into()));
        }
        let file_name = part.file_name().map(str::to_owned);
        let content_type =
            part.content_type().map_or("application/octet-stream", |kind| kind.as_ref()).to_owned();
        let bytes = part.bytes().await.map_err(|error| broken(error.to_string()))?;
        match file_name {
            Some(file_name) => read.files.push(FilePart {
                name: name.trim_end_matches("[]").to_owned(),
                source: FileSource::Bytes { file_name, content_type, bytes },
            }),
            None => {
                let text = String::from_utf8(bytes.to_vec())
                    .map_err(|_| ApiError::invalid(&name, "must be UTF-8 text"))?;
                add_field(&mut read.fields, &name, text);
            }
        }
    }
    Ok(read)
}

fn add_field(fields: &mut Map<String, Value>, name: &str, text: String) {
    let (name, is_list) = match name.strip_suffix("[]") {
        Some(name) => (name, true),
        None => (name, false),
    };
    match fields.get_mut(name) {
        Some(Value::Array(list)) => list.push(text.into()),
        Some(one) => *one = Value::Array(vec![one.take(), text.into()]),
        None if is_list => drop(fields.insert(name.to_owned(), Value::Array(vec![text.into()]))),
        None => drop(fields.insert(name.to_owned(), text.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn form(text: &str) -> Result<RequestBody, ApiError> {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, "multipart/form-data; boundary=b".parse().expect("a header"));
        read(&headers, Body::from(text.replace('\n', "\r\n")), 10_000).await
    }

    #[tokio::test]
    async fn a_form_has_fields_lists_and_files() {
        let body = form(
            "--b\nContent-Disposition: form-data; name=\"model\"\n\nm\n\
             --b\nContent-Disposition: form-data; name=\"kinds[]\"\n\nword\n\
             --b\nContent-Disposition: form-data; name=\"kinds[]\"\n\nsegment\n\
             --b\nContent-Disposition: form-data; name=\"image[]\"; filename=\"a.png\"\nContent-Type: image/png\n\nPNG\n--b--\n",
        )
        .await
        .expect("a form");
        assert_eq!(
            Value::Object(body.fields),
            serde_json::json!({"model": "m", "kinds": ["word", "segment"]})
        );
        let file = &body.files[0];
        assert_eq!(file.name, "image");
        assert_eq!(file.source.size(), Some(3));
    }

    #[tokio::test]
    async fn a_broken_form_is_named_as_such() {
        for text in ["", "--b\n\nno name\n--b--\n", "--b\nContent-Disposition: form-data; name=\"a\"\n\ncut"]
        {
            let error = form(text).await.expect_err("broken");
            assert!(error.message.starts_with("body: "), "{error:?}");
        }
    }
}
