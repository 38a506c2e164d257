//! Small calls for operators: whether a model answers, and whether a key is taken.

use std::sync::Arc;
use std::time::Duration;

use forebay_engine::upstream::Sent;
use forebay_engine::{AccountId, Capability, Class, Failure, ModelId};
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::{HttpUpstream, gone, known, read_whole, stream};
use crate::exchange::{AnswerStream, Ask, FilePart, FileSource, Operation, Trial, Tried};

/// A trial that takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(60);

impl Trial for HttpUpstream {
    fn try_model<'a>(&'a self, model: &'a ModelId, account: Option<&'a AccountId>) -> BoxFuture<'a, Tried> {
        async move {
            let began = tokio::time::Instant::now();
            let call = tokio::time::timeout(PATIENCE, self.one_call(model, account));
            let result =
                call.await.unwrap_or_else(|_| Err(Failure::new(Class::Unknown, "no answer within 60 s")));
            Tried { took: began.elapsed(), result }
        }
        .boxed()
    }
}

impl HttpUpstream {
    async fn one_call(&self, model: &ModelId, account: Option<&AccountId>) -> Result<Value, Failure> {
        let snapshot = self.catalog.snapshot();
        let target = known(&snapshot, model)?;
        let ask = smallest(target.capability).ok_or_else(|| {
            Failure::new(Class::Request, format!("{} can't be tried with one call", target.capability))
        })?;
        let account = match account {
            Some(account) => Some(account.clone()),
            None if target.provider.needs_account() => {
                let bound = snapshot.alone.get(model).and_then(|pool| pool.members().next().cloned());
                let usable = bound.as_ref().and_then(|member| {
                    member
                        .accounts
                        .iter()
                        .find(|binding| binding.account.is_enabled)
                        .map(|binding| binding.account.id.clone())
                });
                Some(usable.ok_or_else(gone)?)
            }
            None => None,
        };
        let file = ask.operation.answers_a_file();
        let sending = self.send(model, account.as_ref(), &ask, file, &Sent::default()).await?;
        if file {
            use forebay_engine::stream::EventSource;
            let mut file =
                stream::read(sending.response, sending.protocol, ask.operation, sending.secret).await?;
            file.next().await?;
            return Ok(json!({"content_type": file.content_type()}));
        }
        Ok(Value::Object(read_whole(sending, &ask).await?.answer))
    }
}

/// The least that a capability can be asked for.
fn smallest(capability: Capability) -> Option<Ask> {
    let (operation, input) = match capability {
        Capability::Text => {
            (Operation::Chat, json!({"messages": [{"role": "user", "content": "Say OK."}], "max_tokens": 8}))
        }
        Capability::Image => (Operation::Image, json!({"prompt": "a grey square", "n": 1})),
        Capability::Audio => (Operation::Speech, json!({"input": "OK.", "voice": "alloy"})),
        Capability::Embedding => (Operation::Embedding, json!({"input": "OK"})),
        Capability::Rerank => (Operation::Rerank, json!({"query": "OK", "documents": ["OK"]})),
        Capability::Moderation => (Operation::Moderation, json!({"input": "OK"})),
        Capability::Speech2text => (Operation::Transcription, json!({})),
        Capability::Video => return None,
    };
    let Value::Object(input) = input else { return None };
    let mut ask = Ask::new(operation, Arc::new(input));
    if operation == Operation::Transcription {
        ask.files = Arc::new([FilePart { name: "file".into(), source: silence() }]);
    }
    Some(ask)
}

/// A tenth of a second of nothing, as a WAV file.
fn silence() -> FileSource {
    const RATE: u32 = 8_000;
    const SAMPLES: u32 = RATE / 10;
    let mut wav = Vec::with_capacity(44 + SAMPLES as usize);
    wav.extend_from_slice(b"RIFF");
    wav.extend_from_slice(&(36 + SAMPLES).to_le_bytes());
    wav.extend_from_slice(b"WAVEfmt ");
    wav.extend_from_slice(&16_u32.to_le_bytes());
    // PCM, one channel, eight bits a sample.
    for half in [1_u16, 1] {
        wav.extend_from_slice(&half.to_le_bytes());
    }
    for word in [RATE, RATE] {
        wav.extend_from_slice(&word.to_le_bytes());
    }
    for half in [1_u16, 8] {
        wav.extend_from_slice(&half.to_le_bytes());
    }
    wav.extend_from_slice(b"data");
    wav.extend_from_slice(&SAMPLES.to_le_bytes());
    wav.resize(wav.len() + SAMPLES as usize, 128);
    FileSource::Bytes { file_name: "silence.wav".into(), content_type: "audio/wav".into(), bytes: wav.into() }
}
