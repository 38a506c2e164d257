//! What a page is made of: loaded by the server with the page, by the browser when the URL changes.

use std::future::Future;
use std::pin::Pin;

use codee::{Decoder, Encoder};
use leptos::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::ask::Answer;
use super::notice::Problem;
use super::text::use_text;
use crate::port::PortError;

/// How a page's data crosses with the page: JSON, read by the same code that reads the answers of
/// server functions, so that the bundle holds that code once.
pub(crate) struct Json;

impl<T: Serialize> Encoder<T> for Json {
    type Error = serde_json::Error;
    type Encoded = String;

    fn encode(value: &T) -> Result<String, Self::Error> {
        serde_json::to_string(value)
    }
}

impl<T: DeserializeOwned> Decoder<T> for Json {
    type Error = serde_json::Error;
    type Encoded = str;

    fn decode(text: &str) -> Result<T, Self::Error> {
        serde_json::from_slice(text.as_bytes())
    }
}

/// The data of a page.
pub(crate) type PageData<T> = Resource<Result<T, PortError>, Json>;

/// Loads a page's data, and again whenever `key` changes.
pub(crate) fn load<K, T>(
    key: impl Fn() -> K + Send + Sync + 'static,
    ask: impl Fn(K) -> Answer<T> + Send + Sync + 'static,
) -> PageData<T>
where
    K: PartialEq + Clone + Send + Sync + 'static,
    T: Serialize + DeserializeOwned + Send + Sync + 'static,
{
    Resource::new_with_options(key, ask, false)
}

/// Shows a page's data once it is there; keeps showing the old while newer is under way.
pub(crate) fn show<T>(data: PageData<T>, render: impl Fn(T) -> AnyView + Clone + Send + Sync + 'static) -> AnyView
where
    T: Clone + Send + Sync + 'static,
{
    show_later(Box::new(move || {
        let render = render.clone();
        Box::pin(async move {
            match data.await {
                Ok(data) => render(data),
                Err(error) => {
                    set_status(&error);
                    view! { <Problem error/> }.into_any()
                }
            }
        })
    }))
}

type Later = Pin<Box<dyn Future<Output = AnyView> + Send>>;

fn show_later(render: Box<dyn Fn() -> Later + Send + Sync>) -> AnyView {
    let t = use_text();
    view! {
        <Transition fallback=move || {
            view! { <p class="muted">{t.common.loading}</p> }
        }>{move || Suspend::new(render())}</Transition>
    }
    .into_any()
}

/// A page about something that does not exist is a page that does not exist.
fn set_status(error: &PortError) {
    #[cfg(feature = "ssr")]
    if let (PortError::NotFound { .. }, Some(response)) = (error, use_context::<leptos_axum::ResponseOptions>()) {
        response.set_status(http::StatusCode::NOT_FOUND);
    }
    #[cfg(not(feature = "ssr"))]
    let _ = error;
}
