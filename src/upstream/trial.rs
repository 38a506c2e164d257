//! Small calls for operators: whether a model answers, and whether a key is taken.

use std::sync::Arc;
use std::time::Duration;

use forebay_engine::upstream::Sent;
use forebay_engine::{AccountId, Capability, Class, Failure, ModelId};
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::{HttpUpstream, gone, known, read_whole, stream};
use crate::exchange::{AnswerStream, Ask, FilePart, FileSource, Operation, Trial, Tried, smallest_input};

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

/// The least that a capability can be asked for, as an upstream is asked.
fn smallest(capability: Capability) -> Option<Ask> {
    let Value::Object(mut input) = smallest_input(capability)? else { return None };
    let recording = input.shift_remove("audio");
    let mut ask = Ask::new(Operation::of(capability, "generate")?, Arc::new(input));
    if let Some(source) = recording.and_then(|url| FileSource::parse(url.as_str()?).ok()) {
        ask.files = Arc::new([FilePart { name: "file".into(), source }]);
    }
    Some(ask)
}
