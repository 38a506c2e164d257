//! Form fields: label, control, and beside it what it does and its default.

use leptos::prelude::*;

use super::text::use_text;

/// A label with its control and its help.
#[component]
pub(crate) fn Field(
    /// Of the control.
    id: String,
    /// Its label.
    label: &'static str,
    /// What it does.
    help: &'static str,
    /// Its default, where it has one.
    #[prop(optional_no_strip)]
    default: Option<String>,
    /// The control.
    children: Children,
) -> impl IntoView {
    let t = use_text();
    let help_id = format!("{id}-help");
    view! {
        <div class="field">
            <label for=id>{label}</label>
            <div class="field-control">{children()}</div>
            <p class="field-help" id=help_id>
                {help} {default.map(|value| view! { <span class="field-default">{(t.common.default)(&value)}</span> })}
            </p>
        </div>
    }
}

/// A field of text or a number.
#[component]
pub(crate) fn InputField(
    /// Its name in the form.
    name: &'static str,
    /// Before its name, to make its id.
    prefix: String,
    /// Its label.
    label: &'static str,
    /// What it does.
    help: &'static str,
    /// Its value.
    value: RwSignal<String>,
    /// Its default.
    #[prop(optional, into)]
    default: Option<String>,
    /// `text`, `number` or `password`.
    #[prop(default = "number")]
    kind: &'static str,
    /// Smallest number.
    #[prop(optional)]
    min: Option<&'static str>,
    /// Largest number.
    #[prop(optional)]
    max: Option<&'static str>,
    /// Step of a number.
    #[prop(optional)]
    step: Option<&'static str>,
    /// May be left empty.
    #[prop(optional)]
    optional: bool,
) -> impl IntoView {
    let id = format!("{prefix}-{name}");
    let help_id = format!("{id}-help");
    view! {
        <Field id=id.clone() label help default=default>
            <input
                id=id
                name=name
                type=kind
                min=min
                max=max
                step=step
                required=!optional
                autocomplete="off"
                aria-describedby=help_id
                value=value.get_untracked()
                prop:value=move || value.get()
                on:input:target=move |event| value.set(event.target().value())
            />
        </Field>
    }
}

/// A switch.
#[component]
pub(crate) fn CheckField(
    /// Its name in the form.
    name: &'static str,
    /// Before its name, to make its id.
    prefix: String,
    /// Its label.
    label: &'static str,
    /// What it does.
    help: &'static str,
    /// Its value.
    checked: bool,
    /// Its default, where the help should name it.
    #[prop(optional)]
    default: Option<bool>,
) -> impl IntoView {
    let t = use_text();
    let id = format!("{prefix}-{name}");
    let help_id = format!("{id}-help");
    let default = default.map(|on| if on { t.common.on } else { t.common.off }.to_owned());
    view! {
        <Field id=id.clone() label help default=default>
            <input id=id name=name type="checkbox" value="true" checked=checked aria-describedby=help_id/>
        </Field>
    }
}

/// A choice from a list.
#[component]
pub(crate) fn SelectField(
    /// Its name in the form.
    name: &'static str,
    /// Before its name, to make its id.
    prefix: String,
    /// Its label.
    label: &'static str,
    /// What it does.
    help: &'static str,
    /// Value and text of each choice.
    choices: Vec<(String, String)>,
    /// The value chosen.
    value: RwSignal<String>,
    /// Its default.
    #[prop(optional, into)]
    default: Option<String>,
) -> impl IntoView {
    let id = format!("{prefix}-{name}");
    let help_id = format!("{id}-help");
    view! {
        <Field id=id.clone() label help default=default>
            <Select id=id name choices value describedby=help_id/>
        </Field>
    }
}

/// A select whose choice is a signal.
#[component]
pub(crate) fn Select(
    /// Its id.
    id: String,
    /// Its name in the form.
    name: &'static str,
    /// Value and text of each choice.
    choices: Vec<(String, String)>,
    /// The value chosen.
    value: RwSignal<String>,
    /// The element that explains it.
    #[prop(optional)]
    describedby: Option<String>,
) -> impl IntoView {
    let options = choices
        .into_iter()
        .map(|(choice, text)| {
            let selected = {
                let choice = choice.clone();
                move || value.get() == choice
            };
            view! {
                <option value=choice selected=selected>
                    {text}
                </option>
            }
        })
        .collect_view();
    view! {
        <select
            id=id
            name=name
            aria-describedby=describedby
            on:change:target=move |event| value.set(event.target().value())
        >
            {options}
        </select>
    }
}
