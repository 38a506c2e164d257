//! Everything that simulated models are asked beside chat: OpenAI's other endpoints, Ark's images and
//! speech, DashScope's rerank.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Multipart, State};
use axum::http::{HeaderMap, Response, header};
use axum::response::IntoResponse;
use axum::routing::{MethodRouter, get, post};
use axum::{Json, Router};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use super::answer::{Part, broken, in_parts, json_response, usage_of};
use super::behaviour::Behaviour;
use super::{Shared, Visit};

/// A picture of one grey dot, in base64.
const DOT: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNoAAAAggCBd81ytgAAAABJRU5ErkJggg==";
/// How long a simulated recording is, in seconds.
const SECONDS: f64 = 1.5;

/// The routes; files of results lie at `address`.
pub(super) fn routes(address: SocketAddr) -> Router<Arc<Shared>> {
    let images =
        move |model: &str, behaviour: Behaviour, request: &Value| images(address, model, behaviour, request);
    Router::new()
        .route("/v1/completions", post(completions))
        .route("/v1/responses", post(responses))
        .route("/v1/embeddings", json(embeddings))
        .route("/v1/moderations", json(moderations))
        .route("/v1/rerank", json(rerank))
        .route("/api/v1/services/rerank/text-rerank/text-rerank", json(dashscope_rerank))
        .route("/v1/audio/speech", post(speech))
        .route("/api/v1/tts", post(volcengine_speech))
        .route("/v1/audio/transcriptions", post(transcriptions))
        .route("/v1/images/generations", json(images))
        .route("/api/v3/images/generations", json(images))
        .route(
            "/v1/images/edits",
            post(async move |State(shared): State<Arc<Shared>>, headers: HeaderMap, form: Multipart| {
                let request = form_fields(form).await;
                whole(&shared, &headers, &request, images).await
            }),
        )
        .route("/files/dot.png", get(dot))
}

/// An endpoint that is asked in JSON; `says` is what it answers when nothing goes wrong, and when its
/// model is told to answer nothing.
fn json<S>(says: S) -> MethodRouter<Arc<Shared>>
where
    S: Fn(&str, Behaviour, &Value) -> Value + Copy + Send + Sync + 'static,
{
    post(async move |State(shared): State<Arc<Shared>>, headers: HeaderMap, Json(request): Json<Value>| {
        whole(&shared, &headers, &request, says).await
    })
}

async fn dot() -> Response<Body> {
    ([(header::CONTENT_TYPE, "image/png")], STANDARD.decode(DOT).unwrap_or_default()).into_response()
}

/// A whole JSON answer.
async fn whole(
    shared: &Arc<Shared>,
    headers: &HeaderMap,
    request: &Value,
    says: impl FnOnce(&str, Behaviour, &Value) -> Value,
) -> Response<Body> {
    let model = request["model"].as_str().unwrap_or_default();
    let answer = |model: &str, behaviour: Behaviour, request: &Value, visit: Visit| {
        let body = match behaviour {
            Behaviour::ErrorIn200 => {
                json!({"error": {"code": "server_error", "message": "simulated error inside a 200"}})
            }
            Behaviour::BadJson => {
                visit.finished();
                return ([(header::CONTENT_TYPE, "application/json")], "{\"data\": [").into_response();
            }
            _ => says(model, behaviour, request),
        };
        match broken(behaviour, &Bytes::from(body.to_string())) {
            Some(parts) => in_parts(parts, visit, "application/json"),
            None => {
                visit.finished();
                json_response(200, &body)
            }
        }
    };
    shared.serve(headers, model, request, answer).await
}

/// The fields of a form; of a file its name and size.
async fn form_fields(mut form: Multipart) -> Value {
    let mut fields = Map::new();
    while let Ok(Some(field)) = form.next_field().await {
        let name = field.name().unwrap_or_default().trim_end_matches("[]").to_owned();
        let file = field.file_name().map(str::to_owned);
        let bytes = field.bytes().await.unwrap_or_default();
        let value = match file {
            Some(file) => json!({"file": file, "bytes": bytes.len()}),
            None => Value::from(String::from_utf8_lossy(&bytes).into_owned()),
        };
        match fields.get_mut(&name) {
            Some(Value::Array(list)) => list.push(value),
            Some(one) => *one = json!([one.take(), value]),
            None => drop(fields.insert(name, value)),
        }
    }
    Value::Object(fields)
}

const fn is_empty(behaviour: Behaviour) -> bool {
    matches!(behaviour, Behaviour::EmptyChoices | Behaviour::EmptyContent)
}

fn embeddings(model: &str, behaviour: Behaviour, request: &Value) -> Value {
    let count = match &request["input"] {
        _ if is_empty(behaviour) => 0,
        Value::Array(list) if !list.iter().all(Value::is_u64) => list.len(),
        _ => 1,
    };
    let size = request["dimensions"].as_u64().unwrap_or(8) as usize;
    let vector = |n: usize| (0..size).map(move |place| ((n + place) % 7) as f32 / 7.0);
    let data: Vec<Value> = (0..count)
        .map(|n| {
            let embedding = if request["encoding_format"] == "base64" {
                let bytes: Vec<u8> = vector(n).flat_map(f32::to_le_bytes).collect();
                STANDARD.encode(bytes).into()
            } else {
                vector(n).collect::<Vec<f32>>().into()
            };
            json!({"object": "embedding", "index": n, "embedding": Value::clone(&embedding)})
        })
        .collect();
    let tokens = request["input"].to_string().len() as u64 / 4;
    json!({"object": "list", "model": model, "data": data, "usage": {"prompt_tokens": tokens, "total_tokens": tokens}})
}

fn moderations(model: &str, behaviour: Behaviour, request: &Value) -> Value {
    let count = match &request["input"] {
        _ if is_empty(behaviour) => 0,
        Value::Array(list) => list.len(),
        _ => 1,
    };
    let result = json!({"flagged": false, "categories": {"violence": false}, "category_scores": {"violence": 0.01},
                        "category_applied_input_types": {"violence": ["text"]}});
    json!({"id": "modr-sim", "model": model, "results": vec![result; count]})
}

fn rerank(model: &str, behaviour: Behaviour, request: &Value) -> Value {
    json!({"id": "rerank-sim", "model": model, "results": ranked(&request["documents"], &request["top_n"], behaviour),
           "meta": {"billed_units": {"search_units": 1}}, "usage": {"total_tokens": 12}})
}

fn dashscope_rerank(_: &str, behaviour: Behaviour, request: &Value) -> Value {
    let ranked = ranked(&request["input"]["documents"], &request["parameters"]["top_n"], behaviour);
    json!({"output": {"results": ranked}, "usage": {"total_tokens": 12}, "request_id": "dashscope-sim"})
}

/// The longest document first.
fn ranked(documents: &Value, top_n: &Value, behaviour: Behaviour) -> Vec<Value> {
    if is_empty(behaviour) {
        return Vec::new();
    }
    let documents = documents.as_array().map_or(&[][..], Vec::as_slice);
    let length = |document: &Value| document.as_str().map_or(0, str::len);
    let mut order: Vec<usize> = (0..documents.len()).collect();
    order.sort_by_key(|place| std::cmp::Reverse(length(&documents[*place])));
    order.truncate(top_n.as_u64().map_or(usize::MAX, |top| top as usize));
    let scored = order.into_iter().enumerate();
    scored.map(|(rank, index)| json!({"index": index, "relevance_score": 0.9 / (rank + 1) as f64})).collect()
}

fn images(address: SocketAddr, _: &str, behaviour: Behaviour, request: &Value) -> Value {
    if is_empty(behaviour) {
        return json!({"created": 1_700_000_000, "data": []});
    }
    let number = |value: &Value| value.as_u64().or_else(|| value.as_str()?.parse().ok());
    // Ark asks for several images by another name.
    let several = &request["sequential_image_generation_options"]["max_images"];
    let count = number(&request["n"]).or_else(|| number(several)).unwrap_or(1) as usize;
    let image = if request["response_format"] == "b64_json" {
        json!({"b64_json": DOT})
    } else {
        json!({"url": format!("http://{address}/files/dot.png")})
    };
    let mut data = vec![image; count];
    if behaviour == Behaviour::Partial
        && let Some(last) = data.last_mut()
    {
        *last = json!({"error": {"code": "OutputImageSensitiveContentDetected", "message": "simulated"}});
    }
    json!({"created": 1_700_000_000, "data": data})
}

async fn transcriptions(
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
    form: Multipart,
) -> Response<Body> {
    let request = form_fields(form).await;
    let model = request["model"].as_str().unwrap_or_default().to_owned();
    if matches!(request["response_format"].as_str(), Some("text" | "srt" | "vtt")) {
        let plain = |_: &str, _: Behaviour, _: &Value, visit: Visit| {
            visit.finished();
            "Hello from a recording.\n".into_response()
        };
        return shared.serve(&headers, &model, &request, plain).await;
    }
    let says = |_: &str, behaviour: Behaviour, request: &Value| {
        if behaviour == Behaviour::EmptyChoices {
            return json!({});
        }
        let mut said = json!({"text": "Hello from a recording."});
        if request["response_format"] == "verbose_json" {
            said["duration"] = json!(SECONDS);
            said["language"] = json!("english");
            said["segments"] = json!([]);
        } else {
            said["usage"] = json!({"type": "duration", "seconds": SECONDS});
        }
        said
    };
    whole(&shared, &headers, &request, says).await
}

async fn speech(
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
    Json(request): Json<Value>,
) -> Response<Body> {
    let model = request["model"].as_str().unwrap_or_default().to_owned();
    let answer = |_: &str, behaviour: Behaviour, request: &Value, visit: Visit| {
        let sound = Part::Bytes(Bytes::from(sound(request)));
        let parts = match behaviour {
            Behaviour::ErrorIn200 => {
                visit.finished();
                return json_response(
                    200,
                    &json!({"error": {"code": "server_error", "message": "simulated"}}),
                );
            }
            Behaviour::EmptyChoices | Behaviour::EmptyContent => Vec::new(),
            Behaviour::HangAfterHeaders | Behaviour::HangAfterRole => vec![Part::Hang],
            Behaviour::CutBeforeContent => vec![Part::Cut],
            Behaviour::HangAfterContent => vec![sound, Part::Hang],
            Behaviour::CutAfterContent => vec![sound, Part::Cut],
            Behaviour::Pieces(count, apart) => (0..count)
                .flat_map(|_| [Part::Bytes(Bytes::from_static(&[0x55; 1_024])), Part::Pause(apart)])
                .collect(),
            Behaviour::Bulk(count) => {
                (0..count).map(|_| Part::Bytes(Bytes::from_static(&[0x55; 64 * 1_024]))).collect()
            }
            _ => vec![sound, Part::Pause(Duration::from_millis(1))],
        };
        let kind = if request["response_format"] == "wav" { "audio/wav" } else { "audio/mpeg" };
        in_parts(parts, visit, kind)
    };
    shared.serve(&headers, &model, &request, answer).await
}

/// Silence: as a WAV file, or as a frame of MP3 for every ten characters.
fn sound(request: &Value) -> Vec<u8> {
    let text = request["input"].as_str().unwrap_or_default();
    if request["response_format"] == "wav" {
        let mut wav = b"RIFF\x24\x00\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00".to_vec();
        wav.extend_from_slice(&8_000_u32.to_le_bytes());
        wav.extend_from_slice(&8_000_u32.to_le_bytes());
        wav.extend_from_slice(b"\x01\x00\x08\x00data");
        wav.extend_from_slice(&(text.len() as u32 * 100).to_le_bytes());
        wav.resize(wav.len() + text.len() * 100, 128);
        return wav;
    }
    // MPEG 1, layer III, 128 kbit/s, 44.1 kHz: frames of 417 bytes.
    let mut frame = vec![0xff, 0xfb, 0x90, 0x64];
    frame.resize(417, 0);
    frame.repeat(text.len() / 10 + 1)
}

async fn volcengine_speech(
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
    Json(request): Json<Value>,
) -> Response<Body> {
    // This API knows no models: the voice stands for one.
    let voice = request["audio"]["voice_type"].as_str().unwrap_or_default().to_owned();
    let answer = |_: &str, behaviour: Behaviour, request: &Value, visit: Visit| {
        visit.finished();
        let body = match behaviour {
            Behaviour::ErrorIn200 => json!({"code": 3003, "message": "concurrency exceeded"}),
            Behaviour::EmptyChoices => json!({"code": 3000, "message": "Success"}),
            _ => {
                json!({"reqid": request["request"]["reqid"], "code": 3000, "message": "Success", "sequence": -1,
                        "data": STANDARD.encode(sound(&json!({"input": request["request"]["text"]})))})
            }
        };
        json_response(200, &body)
    };
    shared.serve(&headers, &voice, &request, answer).await
}

async fn completions(
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
    Json(request): Json<Value>,
) -> Response<Body> {
    let model = request["model"].as_str().unwrap_or_default().to_owned();
    if request["stream"] != true {
        let says = |model: &str, behaviour: Behaviour, request: &Value| {
            let text = if is_empty(behaviour) { String::new() } else { format!("Hello from {model}.") };
            json!({"id": "cmpl-sim", "object": "text_completion", "created": 1_700_000_000, "model": model,
                   "choices": [{"index": 0, "text": text, "finish_reason": "stop", "logprobs": null}],
                   "usage": usage_of(request, text.len() as u64)})
        };
        return whole(&shared, &headers, &request, says).await;
    }
    let answer = |model: &str, behaviour: Behaviour, request: &Value, visit: Visit| {
        let chunk = |text: &str, finish: Option<&str>| {
            event(
                None,
                &json!({"id": "cmpl-sim", "object": "text_completion", "created": 1_700_000_000, "model": model,
                                "choices": [{"index": 0, "text": text, "finish_reason": finish}]}),
            )
        };
        let mut parts = match behaviour {
            Behaviour::CutBeforeContent => vec![Part::Cut],
            Behaviour::CutAfterContent => vec![chunk("Hello", None), Part::Cut],
            Behaviour::EmptyChoices | Behaviour::EmptyContent => vec![chunk("", Some("stop"))],
            _ => vec![chunk("Hello", None), chunk(" from ", None), chunk(model, Some("stop"))],
        };
        if request["stream_options"]["include_usage"] == true {
            parts.push(event(
                None,
                &json!({"id": "cmpl-sim", "object": "text_completion", "model": model, "choices": [],
                                           "usage": usage_of(request, 3)}),
            ));
        }
        parts.push(Part::Bytes(Bytes::from_static(b"data: [DONE]\n\n")));
        in_parts(parts, visit, "text/event-stream")
    };
    shared.serve(&headers, &model, &request, answer).await
}

async fn responses(
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
    Json(request): Json<Value>,
) -> Response<Body> {
    let model = request["model"].as_str().unwrap_or_default().to_owned();
    if request["stream"] != true {
        let says = |model: &str, behaviour: Behaviour, _: &Value| response(model, "completed", behaviour);
        return whole(&shared, &headers, &request, says).await;
    }
    let answer = |model: &str, behaviour: Behaviour, _: &Value, visit: Visit| {
        let whole = |status: &str| response(model, status, behaviour);
        let named = |kind: &str, fields: Value| {
            let mut fields = fields;
            fields["type"] = json!(kind);
            event(Some(kind), &fields)
        };
        let say = |text: &str| {
            let fields = json!({"item_id": "msg_sim", "output_index": 0, "content_index": 0, "delta": text, "logprobs": []});
            named("response.output_text.delta", fields)
        };
        let mut begun = whole("in_progress");
        begun["output"] = json!([]);
        let created = named("response.created", json!({"response": begun}));
        let completed = || named("response.completed", json!({"response": whole("completed")}));
        let parts = match behaviour {
            Behaviour::CutBeforeContent => vec![created, Part::Cut],
            Behaviour::CutAfterContent => vec![created, say("Hello"), Part::Cut],
            Behaviour::HangAfterRole => vec![created, Part::Hang],
            Behaviour::EmptyChoices | Behaviour::EmptyContent => vec![created, completed()],
            Behaviour::ErrorIn200 => {
                let error = json!({"code": "server_error", "message": "simulated"});
                let failed =
                    json!({"id": "resp_sim", "object": "response", "status": "failed", "error": error});
                vec![created, named("response.failed", json!({"response": failed}))]
            }
            _ => {
                let output = &whole("completed")["output"];
                let item = |kind: &str, mut item: Value| {
                    if kind == "response.output_item.added" {
                        item["content"] = json!([]);
                    }
                    named(kind, json!({"output_index": 0, "item": item}))
                };
                let part = |kind: &str, text: &str| {
                    let part = json!({"type": "output_text", "text": text, "annotations": []});
                    named(
                        kind,
                        json!({"item_id": "msg_sim", "output_index": 0, "content_index": 0, "part": part}),
                    )
                };
                let text = format!("Hello from {model}.");
                let said = json!({"item_id": "msg_sim", "output_index": 0, "content_index": 0, "text": text, "logprobs": []});
                vec![
                    created,
                    item("response.output_item.added", output[0].clone()),
                    part("response.content_part.added", ""),
                    say("Hello"),
                    say(" from "),
                    say(model),
                    say("."),
                    named("response.output_text.done", said),
                    part("response.content_part.done", &text),
                    item("response.output_item.done", output[0].clone()),
                    completed(),
                ]
            }
        };
        in_parts(parts, visit, "text/event-stream")
    };
    shared.serve(&headers, &model, &request, answer).await
}

fn response(model: &str, status: &str, behaviour: Behaviour) -> Value {
    let text = format!("Hello from {model}.");
    let content = json!([{"type": "output_text", "text": text, "annotations": []}]);
    let message = json!({"id": "msg_sim", "type": "message", "role": "assistant", "status": status, "content": content});
    let output = if is_empty(behaviour) { json!([]) } else { json!([message]) };
    json!({"id": "resp_sim", "object": "response", "created_at": 1_700_000_000, "model": model, "status": status,
           "output": output, "error": null, "incomplete_details": null, "instructions": null, "metadata": {},
           "parallel_tool_calls": true, "temperature": 1.0, "tool_choice": "auto", "tools": [], "top_p": 1.0,
           "usage": {"input_tokens": 7, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 5,
                     "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 12}})
}

/// A server-sent event.
fn event(name: Option<&str>, data: &Value) -> Part {
    let name = name.map(|name| format!("event: {name}\n")).unwrap_or_default();
    Part::Bytes(Bytes::from(format!("{name}data: {data}\n\n")))
}
