//! Small bars. SVG, because the content security policy allows no style attributes.

use leptos::prelude::*;

use super::format;

/// How much of something is used, 0 to 1. The figure stands beside it.
#[component]
pub(crate) fn Meter(
    /// 0 to 1; more is drawn as 1.
    #[prop(into)]
    share: Signal<f64>,
) -> impl IntoView {
    let width = move || format::length(share.get());
    let class = move || {
        if share.get() >= 0.9 { "meter meter-high" } else { "meter" }
    };
    view! {
        <svg class=class aria-hidden="true">
            <rect class="meter-track" width="100%" height="100%" rx="2"></rect>
            <rect class="meter-fill" width=width height="100%" rx="2"></rect>
        </svg>
    }
}

/// Parts of a whole in a row, each with its class. Nothing is drawn where the whole is 0.
#[component]
pub(crate) fn Strip(
    /// Class and size of each part, left to right.
    #[prop(into)]
    parts: Signal<Vec<(&'static str, u32)>>,
) -> impl IntoView {
    let bars = move || {
        let parts = parts.get();
        let whole = f64::from(parts.iter().map(|(_, n)| n).sum::<u32>().max(1));
        let mut x = 0.0;
        parts
            .into_iter()
            .map(|(class, n)| {
                let width = f64::from(n) / whole;
                let bar = view! {
                    <rect class=class x=format::length(x) width=format::length(width) height="100%"></rect>
                }
                .into_any();
                x += width;
                bar
            })
            .collect_view()
    };
    view! {
        <svg class="strip" aria-hidden="true">
            <rect class="strip-track" width="100%" height="100%"></rect>
            {move || bars()}
        </svg>
    }
}
