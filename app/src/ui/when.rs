//! Showing a thing only while something holds.

use leptos::prelude::*;

/// Shows what `render` makes while `condition` holds. Does what `Show` does; but there is one of it
/// in the bundle, where `Show` is compiled anew for each use.
pub(crate) fn when(
    condition: impl Fn() -> bool + Send + Sync + 'static,
    render: impl Fn() -> AnyView + Send + Sync + 'static,
) -> AnyView {
    choose(Box::new(condition), Box::new(render))
}

fn choose(
    condition: Box<dyn Fn() -> bool + Send + Sync>,
    render: Box<dyn Fn() -> AnyView + Send + Sync>,
) -> AnyView {
    let holds = Memo::new(move |_| condition());
    view! { {move || holds.get().then(&render)} }.into_any()
}
