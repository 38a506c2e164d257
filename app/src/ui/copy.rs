//! Ids that can be copied: with the button, or by one click and the keyboard.

use leptos::prelude::*;
use leptos::task::spawn_local;

use super::icon::{Glyph, Icon};
use super::text::use_text;
use super::toast::Toasts;

/// A button that copies a text.
#[component]
pub(crate) fn CopyButton(
    /// What is copied.
    text: String,
) -> impl IntoView {
    let t = use_text();
    let toasts = expect_context::<Toasts>();
    let copy = move |_| {
        let text = text.clone();
        spawn_local(async move {
            // Browsers give the clipboard to secure pages only.
            let copied = window().is_secure_context() && {
                let written = window().navigator().clipboard().write_text(&text);
                wasm_bindgen_futures::JsFuture::from(written).await.is_ok()
            };
            toasts.say(if copied { t.common.copied } else { t.common.copy_by_hand }.to_owned());
        });
    };
    view! {
        <button type="button" class="copy" title=t.common.copy aria-label=t.common.copy on:click=copy>
            <Icon glyph=Glyph::Copy/>
        </button>
    }
}

/// An id in full with its copy button.
#[component]
pub(crate) fn CopyId(
    /// The id.
    id: String,
) -> impl IntoView {
    view! {
        <span class="id">
            <code>{id.clone()}</code>
            <CopyButton text=id/>
        </span>
    }
}
