//! What a page is made of: loaded by the server with the page, by the browser when the URL changes.

use std::future::Future;
use std::pin::Pin;

use leptos::prelude::*;
use serde::de::DeserializeOwned;

use super::ask::{Answer, read};
use super::notice::Problem;
use super::text::use_text;
use crate::port::PortError;

/// The data of a page, as JSON: so there is one such resource in the bundle, not one for each page.
pub(crate) type PageData = Resource<Result<String, PortError>>;

/// Loads a page's data, and again whenever `key` changes.
pub(crate) fn load(
    key: impl Fn() -> String + Send + Sync + 'static,
    ask: impl Fn(String) -> Answer<String> + Send + Sync + 'static,
) -> PageData {
    let key: Box<dyn Fn() -> String + Send + Sync> = Box::new(key);
    let ask: Box<dyn Fn(String) -> Answer<String> + Send + Sync> = Box::new(ask);
    Resource::new(key, ask)
}

/// Shows a page's data once it is there; keeps showing the old while newer is under way.
pub(crate) fn show<T>(data: PageData, render: impl Fn(T) -> AnyView + Send + Sync + 'static) -> AnyView
where
    T: DeserializeOwned,
{
    show_json(data, Box::new(move |json| read(json).map(&render)))
}

/// Makes a page of its data, if it can be read.
type Render = Box<dyn Fn(&str) -> Result<AnyView, PortError> + Send + Sync>;
type Later = Pin<Box<dyn Future<Output = AnyView> + Send>>;

fn show_json(data: PageData, render: Render) -> AnyView {
    let t = use_text();
    let render = StoredValue::new(render);
    let later = move || -> Later {
        Box::pin(async move {
            let view = data.await.and_then(|json| render.with_value(|render| render(&json)));
            view.unwrap_or_else(|error| {
                set_status(&error);
                view! { <Problem error/> }.into_any()
            })
        })
    };
    view! {
        <Transition fallback=move || {
            view! { <p class="muted">{t.common.loading}</p> }
        }>{move || Suspend::new(later())}</Transition>
    }
    .into_any()
}

/// A page about something that does not exist is a page that does not exist.
fn set_status(error: &PortError) {
    #[cfg(feature = "ssr")]
    if let (PortError::NotFound { .. }, Some(response)) =
        (error, use_context::<leptos_axum::ResponseOptions>())
    {
        response.set_status(http::StatusCode::NOT_FOUND);
    }
    #[cfg(not(feature = "ssr"))]
    let _ = error;
}
