//! Speech: a file that is passed on as it comes, and written down on the way.

use std::io;

use forebay_engine::Usage;
use forebay_engine::live::{LiveStream, StreamEnd};
use forebay_wire::audio::duration_millis;
use serde_json::{Map, Value, json};

use super::answer::Finished;
use super::error::ApiError;
use super::run::Running;
use super::stream::{BrokeOff, ToCaller};
use crate::exchange::{AnswerStream, ModelUpstream, StreamEvent};
use crate::ledger::TaskStatus;
use crate::results::{Draft, Kept};

use std::sync::Arc;

impl<U: ModelUpstream> Running<U> {
    /// What the file is: as the upstream says, or as it was asked for.
    pub(super) fn content_type(&self, said: Option<&str>) -> String {
        let known = said.filter(|kind| kind.starts_with("audio/") || kind.starts_with("video/"));
        known
            .unwrap_or_else(|| match self.asked.input.get("response_format").and_then(Value::as_str) {
                Some("opus") => "audio/ogg",
                Some("aac") => "audio/aac",
                Some("flac") => "audio/flac",
                Some("wav") => "audio/wav",
                Some("pcm") => "application/octet-stream",
                _ => "audio/mpeg",
            })
            .to_owned()
    }

    /// Passes a file on to `to_caller`, where there is one, and keeps it. When `left` resolves first, the
    /// upstream is let go, unless the request's key lets the caller come back.
    pub(super) async fn speech(
        self,
        mut live: LiveStream<U::Stream>,
        to_caller: Option<ToCaller>,
        left: impl Future<Output = ()>,
    ) -> Finished {
        let content_type = self.content_type(live.source().content_type());
        let mut draft = self.gateway.results.begin(&content_type).await;
        let end = self.pass_file_on(&mut live, to_caller.as_ref(), &mut draft, left).await;
        let usage = live.source().usage(&self.worst);
        let provider_task_id = live.source().provider_task_id();
        let kept = match (draft, &end) {
            (Ok(draft), StreamEnd::Complete) => draft.keep().await,
            (Ok(_), _) => Err(io::ErrorKind::Interrupted.into()),
            (Err(error), _) => Err(error),
        };
        let usage = self.with_duration(usage, &content_type, &kept).await;
        let attempt = live.end(&end, Some(usage), provider_task_id);
        match (end, kept) {
            (StreamEnd::Complete, Ok(kept)) => {
                let answer = self.answer(output(&content_type, Some(&kept)), None, &attempt);
                self.end_well(&answer, attempt).await;
                Ok(answer)
            }
            // The caller has heard it all, and only a replay will miss it.
            (StreamEnd::Complete, Err(error)) if to_caller.is_some() => {
                tracing::error!(task = %self.task_id, %error, "a result could not be kept");
                let answer = self.answer(output(&content_type, None), None, &attempt);
                self.end_well(&answer, attempt).await;
                Ok(answer)
            }
            (StreamEnd::Complete, Err(error)) => {
                Err(Arc::new(self.result_lost(attempt, error.to_string()).await))
            }
            (StreamEnd::Died(_), _) => {
                let error = ApiError::stream_died().of_task(&self.task_id);
                self.end_badly(TaskStatus::Failed, &error, Some(attempt)).await;
                if let Some(to_caller) = &to_caller {
                    let _ = to_caller.send(Err(BrokeOff)).await;
                }
                Err(Arc::new(error))
            }
            // What was delivered is paid for.
            (StreamEnd::CallerLeft, _) if to_caller.is_some() => {
                let answer = self.answer(output(&content_type, None), None, &attempt);
                self.cancelled_after_content(&answer, attempt).await;
                Ok(answer)
            }
            (StreamEnd::CallerLeft, _) => {
                let error = ApiError::cancelled().of_task(&self.task_id);
                self.end_badly(TaskStatus::Cancelled, &error, Some(attempt)).await;
                Err(Arc::new(error))
            }
        }
    }

    async fn pass_file_on(
        &self,
        live: &mut LiveStream<U::Stream>,
        to_caller: Option<&ToCaller>,
        draft: &mut io::Result<Draft>,
        left: impl Future<Output = ()>,
    ) -> StreamEnd {
        let keep_on = self.asked.idempotency.is_some();
        let mut listener = to_caller;
        tokio::pin!(left);
        loop {
            let event = tokio::select! {
                biased;
                event = live.next() => event,
                () = &mut left, if !keep_on => return StreamEnd::CallerLeft,
            };
            let bytes = match event {
                Ok(Some(StreamEvent::Bytes(bytes))) => bytes,
                Ok(Some(_)) => continue,
                Ok(None) => return StreamEnd::Complete,
                Err(failure) => return StreamEnd::Died(failure),
            };
            if let Ok(open) = draft
                && let Err(error) = open.write(&bytes).await
            {
                *draft = Err(error);
            }
            if let Some(to_caller) = listener
                && to_caller.send(Ok(bytes)).await.is_err()
            {
                if !keep_on {
                    return StreamEnd::CallerLeft;
                }
                listener = None;
            }
        }
    }

    /// With the length of the file, where seconds have a price.
    async fn with_duration(&self, usage: Usage, content_type: &str, kept: &io::Result<Kept>) -> Usage {
        let file = kept.as_ref().ok().and_then(|kept| self.gateway.results.file(&kept.mark));
        let Some(file) = file.filter(|_| self.asked.prices.per_audio_second.is_some()) else {
            return usage;
        };
        let bytes = tokio::fs::read(file).await.unwrap_or_default();
        let millis = duration_millis(&bytes, Some(content_type)).unwrap_or(self.worst.audio_millis);
        Usage { audio_millis: millis, ..usage }
    }
}

fn output(content_type: &str, kept: Option<&Kept>) -> Map<String, Value> {
    let audio = json!({"url": kept.map(|kept| &kept.mark), "content_type": content_type,
                       "bytes": kept.map(|kept| kept.bytes)});
    Map::from_iter([("audio".to_owned(), audio)])
}
