//! The answers of the capabilities other than text: whether there is anything in them.
//!
//! An answer that answers nothing is `bad_answer` for the small capabilities and `unknown` for images:
//! who made nothing may have billed it all the same.

use serde_json::Value;

/// What an images answer holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ImageContent {
    /// Pictures in it.
    pub images: usize,
    /// The `error` of each picture that was not made; Ark sends them beside those that were.
    pub errors: Vec<Value>,
}

/// Counts the items of `data` that have a non-empty `url` or `b64_json`, and collects their errors. Empty
/// = no picture; with errors and no picture those say why.
pub fn has_image(answer: &Value) -> ImageContent {
    let mut content = ImageContent::default();
    for item in list(answer, "data") {
        if ["url", "b64_json"].iter().any(|name| is_text(item.get(*name))) {
            content.images += 1;
        } else if let Some(error) = item.get("error").filter(|error| !error.is_null()) {
            content.errors.push(error.clone());
        }
    }
    content
}

/// Every item of `data` has an `embedding`: numbers, or base64 text. Empty = no item, or one without
/// a vector; a `null` among the numbers is a vector that was not computed.
pub fn is_embedding(answer: &Value) -> bool {
    let is_vector = |item: &Value| match item.get("embedding") {
        Some(Value::Array(numbers)) => !numbers.is_empty() && numbers.iter().all(Value::is_number),
        vector => is_text(vector),
    };
    let items = list(answer, "data");
    !items.is_empty() && items.iter().all(is_vector)
}

/// Every item of `results` has an `index` and a `relevance_score`. Empty = no item: even documents that
/// have nothing to do with the query get a score.
pub fn is_rerank(answer: &Value) -> bool {
    let is_scored = |item: &Value| {
        item.get("index").is_some_and(Value::is_u64)
            && item.get("relevance_score").is_some_and(Value::is_number)
    };
    let items = list(answer, "results");
    !items.is_empty() && items.iter().all(is_scored)
}

/// `results` has an item. Empty = no verdict at all, which must never pass for a harmless one.
pub fn is_moderation(answer: &Value) -> bool {
    let items = list(answer, "results");
    !items.is_empty() && items.iter().all(Value::is_object)
}

/// Characters of a transcript's `text`, or of an answer that is the text itself; spaces around it do not
/// count. Empty = 0, which silence gives too.
pub fn transcript_chars(answer: &Value) -> usize {
    let text = answer.as_str().or_else(|| answer.get("text")?.as_str());
    text.map_or(0, |text| text.trim().chars().count())
}

fn list<'v>(answer: &'v Value, name: &str) -> &'v [Value] {
    answer.get(name).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn is_text(value: Option<&Value>) -> bool {
    value.and_then(Value::as_str).is_some_and(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn m10_an_images_answer_with_neither_image_nor_error_is_empty() {
        for answer in [
            json!({}),
            json!({"data": []}),
            json!({"data": null}),
            json!({"data": [{}]}),
            json!({"data": [{"url": "", "b64_json": null, "error": null}]}),
            json!([]),
        ] {
            assert_eq!(has_image(&answer), ImageContent::default(), "{answer}");
        }
    }

    #[test]
    fn images_and_their_errors_are_told_apart() {
        let error = json!({"code": "OutputImageSensitiveContentDetected", "message": "withheld"});
        let answer = json!({"data": [{"url": "https://x/1.png"}, {"error": error}, {"b64_json": "AAAA"}]});
        assert_eq!(has_image(&answer), ImageContent { images: 2, errors: vec![error.clone()] });
        let refused = json!({"data": [{"error": error}]});
        assert_eq!(has_image(&refused), ImageContent { images: 0, errors: vec![error] });
    }

    #[test]
    fn an_embedding_has_a_vector_in_every_item() {
        assert!(is_embedding(&json!({"data": [{"embedding": [0.1, -2, 3e-4]}]})));
        assert!(is_embedding(&json!({"data": [{"embedding": "AACAPw=="}, {"embedding": [0]}]})));
        for answer in [
            json!({"data": []}),
            json!({"data": [{"embedding": []}]}),
            json!({"data": [{"embedding": ""}]}),
            json!({"data": [{"embedding": [0.1, null]}]}),
            json!({"data": [{"embedding": [1]}, {"index": 1}]}),
            json!({}),
        ] {
            assert!(!is_embedding(&answer), "{answer}");
        }
    }

    #[test]
    fn a_rerank_scores_its_documents() {
        assert!(is_rerank(&json!({"results": [{"index": 0, "relevance_score": 0.0}]})));
        for answer in [
            json!({"results": []}),
            json!({"results": [{"index": 0}]}),
            json!({"results": [{"index": -1, "relevance_score": 1}]}),
            json!({"data": [{"index": 0, "relevance_score": 0.5}]}),
        ] {
            assert!(!is_rerank(&answer), "{answer}");
        }
    }

    #[test]
    fn a_moderation_has_a_verdict() {
        assert!(is_moderation(&json!({"results": [{"flagged": false}]})));
        assert!(!is_moderation(&json!({"results": []})));
        assert!(!is_moderation(&json!({"results": [null]})));
    }

    #[test]
    fn a_transcript_is_its_text() {
        assert_eq!(transcript_chars(&json!({"text": " 你好 "})), 2);
        assert_eq!(transcript_chars(&json!("hé")), 2);
        assert_eq!(transcript_chars(&json!({"text": " "})), 0);
        assert_eq!(transcript_chars(&json!({"segments": []})), 0);
    }
}
