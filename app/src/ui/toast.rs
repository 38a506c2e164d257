//! Short words about what has succeeded. They go by themselves.

use std::time::Duration;

use leptos::prelude::*;

use super::icon::{Glyph, Icon};

const SHOWN_FOR: Duration = Duration::from_secs(6);

/// The toasts on the screen; found in context.
#[derive(Clone, Copy)]
pub(crate) struct Toasts {
    shown: RwSignal<Vec<(u32, String)>>,
    next: StoredValue<u32>,
}

impl Toasts {
    pub(crate) fn new() -> Self {
        Self { shown: RwSignal::new(Vec::new()), next: StoredValue::new(0) }
    }

    /// Shows a text for six seconds. In the browser only.
    pub(crate) fn say(&self, text: String) {
        let (shown, id) = (self.shown, self.next.get_value());
        self.next.set_value(id + 1);
        shown.update(|toasts| toasts.push((id, text)));
        set_timeout(move || shown.update(|toasts| toasts.retain(|(i, _)| *i != id)), SHOWN_FOR);
    }
}

/// Where toasts appear; read out by screen readers without moving the focus.
#[component]
pub(crate) fn ToastRegion() -> impl IntoView {
    let shown = expect_context::<Toasts>().shown;
    view! {
        <div class="toasts" role="status" aria-live="polite">
            {move || {
                let toast = |(_, text)| {
                    view! {
                        <p class="toast">
                            <Icon glyph=Glyph::Check/>
                            {text}
                        </p>
                    }
                    .into_any()
                };
                shown.get().into_iter().map(toast).collect_view()
            }}
        </div>
    }
}
