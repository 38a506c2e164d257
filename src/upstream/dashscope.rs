//! DashScope: rerank in its own shape; everything else through its OpenAI-compatible mode.

use serde_json::{Map, Value, json};

use super::call::Call;
use crate::catalog::ModelTarget;
use crate::exchange::Ask;

/// Below its native base URL.
pub(super) const RERANK_PATH: &str = "services/rerank/text-rerank/text-rerank";

const NATIVE: &str = "/api/v1";
const COMPATIBLE: &str = "/compatible-mode/v1";

/// The native API's base, whichever of the two is configured.
pub(super) fn native(base: &str) -> String {
    base.strip_suffix(COMPATIBLE).map_or_else(|| base.to_owned(), |host| format!("{host}{NATIVE}"))
}

/// The compatible mode's base, whichever of the two is configured.
pub(super) fn compatible(base: &str) -> String {
    base.strip_suffix(NATIVE).map_or_else(|| base.to_owned(), |host| format!("{host}{COMPATIBLE}"))
}

/// `{query, documents, top_n, …}` → `{model, input: {query, documents}, parameters: {top_n, …}}`.
pub(super) fn rerank(model: &ModelTarget, ask: &Ask) -> Call {
    let mut parameters = Map::new();
    for (name, value) in ask.input.iter().filter(|(name, _)| !matches!(name.as_str(), "query" | "documents"))
    {
        parameters.insert(name.clone(), value.clone());
    }
    let body = json!({
        "model": model.upstream_model,
        "input": {"query": ask.input.get("query"), "documents": ask.input.get("documents")},
        "parameters": parameters,
    });
    Call::json(body.to_string().into())
}

/// `{output: {results: […]}, usage, request_id}` → `{id, results, usage}`.
pub(super) fn answer(mut body: Map<String, Value>) -> Map<String, Value> {
    if let Some(Value::Object(output)) = body.shift_remove("output") {
        body.extend(output);
    }
    if let Some(id) = body.shift_remove("request_id") {
        body.insert("id".into(), id);
    }
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn either_base_url_leads_to_both_apis() {
        for base in ["https://dashscope.example/api/v1", "https://dashscope.example/compatible-mode/v1"] {
            assert_eq!(native(base), "https://dashscope.example/api/v1");
            assert_eq!(compatible(base), "https://dashscope.example/compatible-mode/v1");
        }
        assert_eq!(
            (native("http://127.0.0.1:1/v1").as_str(), compatible("http://x/v1").as_str()),
            ("http://127.0.0.1:1/v1", "http://x/v1")
        );
    }

    #[test]
    fn the_results_come_out_of_their_wrapping() {
        let body = json!({"output": {"results": [{"index": 0, "relevance_score": 0.9}]}, "usage": {"total_tokens": 7}, "request_id": "r"});
        let answer = answer(body.as_object().expect("an object").clone());
        assert_eq!(
            Value::Object(answer),
            json!({"usage": {"total_tokens": 7}, "results": [{"index": 0, "relevance_score": 0.9}], "id": "r"})
        );
    }
}
