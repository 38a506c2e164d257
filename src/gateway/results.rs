//! Images on their way to the caller: fetched, kept, and handed out under our own address.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use forebay_engine::attempt::AttemptEnded;
use forebay_engine::{Class, Failure};
use serde_json::{Map, Value};

use super::run::Running;
use crate::exchange::{ModelUpstream, Operation};

/// The largest image, in bytes.
const IMAGE_CAP: usize = 64 * 1024 * 1024;
/// A caller that waits is not kept waiting longer than this for a result that was made.
const PATIENCE: Duration = Duration::from_secs(30);

impl<U: ModelUpstream> Running<U> {
    /// Replaces each image of an answer by a mark of what was kept of it. An image that came inside the
    /// answer stays there for this caller; what the ledger keeps is the mark.
    ///
    /// # Errors
    /// When an image could not be fetched or written within the waits of `postprocess.waits_ms`.
    pub(super) async fn keep_images(
        &self,
        output: &mut Map<String, Value>,
        attempt: &AttemptEnded,
    ) -> Result<(), Failure> {
        if !matches!(self.asked.operation, Operation::Image | Operation::ImageEdit) {
            return Ok(());
        }
        let snapshot = self.gateway.catalog.snapshot();
        let pool = self.asked.pool().and_then(|key| snapshot.configs.get(key));
        let rehosts = pool.is_none_or(|pool| pool.rehost_results);
        let items = output.get_mut("data").and_then(Value::as_array_mut).into_iter().flatten();
        for item in items.filter_map(Value::as_object_mut) {
            if let Some(inside) = item.get("b64_json").and_then(Value::as_str).filter(|text| !text.is_empty())
            {
                let bytes = STANDARD
                    .decode(inside)
                    .map_err(|_| Failure::new(Class::Unknown, "an image whose base64 is broken"))?;
                let mark = self.keep(&bytes).await?;
                item.insert("b64_json".into(), mark.into());
            } else if let Some(url) = item.get("url").and_then(Value::as_str).filter(|_| rehosts) {
                let mark = self.fetch_and_keep(attempt, url).await?;
                item.insert("url".into(), mark.into());
            }
        }
        Ok(())
    }

    /// Fetches what an upstream made, again and again while there is time; asks for nothing anew.
    async fn fetch_and_keep(&self, attempt: &AttemptEnded, url: &str) -> Result<String, Failure> {
        let clock = self.gateway.engine.clock();
        let until = clock.now() + PATIENCE;
        let waits = self.gateway.catalog.snapshot().settings.postprocess_waits.clone();
        let mut waits = waits.into_iter();
        loop {
            let kept = match self.gateway.upstream.fetch(&attempt.model, url, IMAGE_CAP).await {
                Ok(fetched) => self.keep(&fetched.bytes).await,
                Err(failure) => Err(failure),
            };
            let failure = match kept {
                Ok(mark) => return Ok(mark),
                Err(failure) => failure,
            };
            // What is refused for good is not waited for.
            if matches!(failure.class, Class::BadAnswer | Class::Misconfigured) {
                return Err(failure);
            }
            let next = waits.next().map(|wait| clock.now() + wait).filter(|at| *at < until);
            let Some(next) = next else { return Err(failure) };
            tracing::warn!(task = %self.task_id, %failure, "a result could not be fetched; trying again");
            clock.sleep_until(next).await;
        }
    }

    /// Keeps what is an image by its first bytes, whatever it was said to be.
    async fn keep(&self, bytes: &[u8]) -> Result<String, Failure> {
        let content_type =
            image_type(bytes).ok_or_else(|| Failure::new(Class::BadAnswer, "what was made is no image"))?;
        let kept = self.gateway.results.put(content_type, bytes).await;
        kept.map(|kept| kept.mark)
            .map_err(|error| Failure::new(Class::Unknown, format!("could not be written: {error}")))
    }
}

/// What an image is, by its first bytes.
fn image_type(bytes: &[u8]) -> Option<&'static str> {
    Some(match bytes {
        [0x89, b'P', b'N', b'G', ..] => "image/png",
        [0xff, 0xd8, 0xff, ..] => "image/jpeg",
        [b'G', b'I', b'F', b'8', ..] => "image/gif",
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => "image/webp",
        [_, _, _, _, b'f', b't', b'y', b'p', b'a', b'v', b'i', b'f', ..] => "image/avif",
        _ => return None,
    })
}
