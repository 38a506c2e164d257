//! Filters live in the URL: a plain GET form, followed in the page once it is hydrated.

use leptos::ev::SubmitEvent;
use leptos::prelude::*;
use leptos_router::NavigateOptions;
use leptos_router::hooks::use_navigate;

use super::form::fields_of;

/// A form whose filled-in fields become the query of `path`.
#[component]
pub(crate) fn FilterForm(
    /// The page.
    path: &'static str,
    /// Fields and button.
    children: Children,
) -> impl IntoView {
    let navigate = use_navigate();
    let follow = move |event: SubmitEvent| {
        let Some(query) = filled_fields(&event) else {
            return;
        };
        event.prevent_default();
        let url = if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") };
        navigate(&url, NavigateOptions::default());
    };
    view! {
        <form class="filters" method="get" action=path on:submit=follow role="search">
            {children()}
        </form>
    }
}

fn filled_fields(event: &SubmitEvent) -> Option<String> {
    let fields = fields_of(event)?;
    Some(fields.split('&').filter(|pair| !pair.ends_with('=')).collect::<Vec<_>>().join("&"))
}
