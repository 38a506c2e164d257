//! Asking before a destructive act. A popover: it opens without JavaScript, Escape and a click
//! elsewhere close it, and the focus comes back by itself.

use leptos::ev::SubmitEvent;
use leptos::prelude::*;
use leptos::wasm_bindgen::JsCast;

use super::text::use_text;

/// A button that asks first. Its children are the form that is sent when the answer is yes; its
/// last child should be [`ConfirmButtons`].
#[component]
pub(crate) fn Confirm(
    /// Unique on the page.
    id: String,
    /// On the button that opens it.
    label: &'static str,
    /// Class of that button.
    #[prop(default = "button")]
    class: &'static str,
    /// What will happen, to what.
    #[prop(into)]
    question: String,
    /// The form.
    children: Children,
) -> impl IntoView {
    let close = |event: SubmitEvent| {
        let popover =
            event.current_target().and_then(|target| target.dyn_into::<web_sys::HtmlElement>().ok());
        if let Some(popover) = popover {
            // Fails only when it is closed already.
            let _ = popover.hide_popover();
        }
    };
    let question_id = format!("{id}-question");
    view! {
        <button type="button" class=class popovertarget=id.clone()>
            {label}
        </button>
        <div
            id=id
            popover="auto"
            class="confirm"
            role="dialog"
            aria-labelledby=question_id
            on:submit=close
        >
            <p id=question_id.clone() class="confirm-question">
                {question}
            </p>
            {children()}
        </div>
    }
}

/// Yes and no of a [`Confirm`].
#[component]
pub(crate) fn ConfirmButtons(
    /// The id of the [`Confirm`].
    of: String,
    /// What yes does.
    go: &'static str,
) -> impl IntoView {
    let t = use_text();
    view! {
        <div class="confirm-buttons">
            <button type="button" class="button" popovertarget=of popovertargetaction="hide">
                {t.common.cancel}
            </button>
            <button type="submit" class="button button-danger">
                {go}
            </button>
        </div>
    }
}
