//! What a form's server function came to: a toast, or an error beside the form.

use leptos::prelude::*;
use leptos::server_fn::ServerFn;

use super::toast::Toasts;
use crate::port::PortError;

/// After each success of `action`: says what was done, then calls `then`.
pub(crate) fn on_success<S>(
    action: ServerAction<S>,
    say: impl Fn(&S::Output) -> String + 'static,
    then: impl Fn() + 'static,
) where
    S: ServerFn<Error = PortError> + Clone + Send + Sync + 'static,
    S::Output: Clone + Send + Sync + 'static,
{
    let toasts = expect_context::<Toasts>();
    Effect::new(move || {
        if let Some(Ok(output)) = action.value().get() {
            toasts.say(say(&output));
            then();
        }
    });
}

/// Why the last try of `action` failed.
pub(crate) fn problem_of<S>(action: ServerAction<S>) -> Signal<Option<PortError>>
where
    S: ServerFn<Error = PortError> + Clone + Send + Sync + 'static,
    S::Output: Clone + Send + Sync + 'static,
{
    Signal::derive(move || action.value().with(|value| value.as_ref()?.as_ref().err().cloned()))
}
