//! Form fields: label, control, and beside it what it does and its default.

use leptos::prelude::*;

use super::text::{FieldText, use_text};

/// What all controls of a form share.
#[derive(Clone, Copy)]
pub(crate) struct Controls<'a> {
    /// Before each control's name, to make its id.
    pub(crate) prefix: &'a str,
    /// What the controls' names are fields of: `edit` makes `edit[max_rps]`.
    pub(crate) of: &'a str,
}

impl Controls<'_> {
    /// A number. `step` is `1` for whole ones, `any` for others.
    pub(crate) fn number(
        self,
        name: &str,
        text: FieldText,
        value: RwSignal<String>,
        default: impl ToString,
        range: Range,
    ) -> AnyView {
        self.input(name, text, value, default.to_string(), Kind::Number(range))
    }

    /// A number that may be left out.
    pub(crate) fn optional_number(
        self,
        name: &str,
        text: FieldText,
        value: Option<impl ToString>,
        default: &str,
        range: Range,
    ) -> AnyView {
        self.input(name, text, signal_of(value), default.to_owned(), Kind::OptionalNumber(range))
    }

    /// A text that must be given; it has no default.
    pub(crate) fn text(self, name: &str, text: FieldText, value: String) -> AnyView {
        self.input(name, text, RwSignal::new(value), String::new(), Kind::Text)
    }

    /// A text that may be left out.
    pub(crate) fn optional_text(
        self,
        name: &str,
        text: FieldText,
        value: Option<String>,
        default: &str,
    ) -> AnyView {
        self.input(name, text, signal_of(value), default.to_owned(), Kind::OptionalText)
    }

    /// A text that is not shown while it is typed.
    pub(crate) fn secret(self, name: &str, text: FieldText, value: RwSignal<String>) -> AnyView {
        self.input(name, text, value, String::new(), Kind::Secret)
    }

    fn input(
        self,
        name: &str,
        text: FieldText,
        value: RwSignal<String>,
        default: String,
        kind: Kind,
    ) -> AnyView {
        let id = self.id(name);
        let help_id = help_id(&id);
        let (kind, required, range) = match kind {
            Kind::Number(range) => ("number", true, Some(range)),
            Kind::OptionalNumber(range) => ("number", false, Some(range)),
            Kind::Text => ("text", true, None),
            Kind::OptionalText => ("text", false, None),
            Kind::Secret => ("password", true, None),
        };
        let control = view! {
            <input
                id=id.clone()
                name=self.name(name)
                type=kind
                min=range.map(|range| range.min)
                max=range.and_then(|range| range.max)
                step=range.map(|range| range.step)
                required=required
                autocomplete="off"
                aria-describedby=help_id
                value=value.get_untracked()
                prop:value=move || value.get()
                on:input:target=move |event| value.set(event.target().value())
            />
        };
        field(id, text, default, control.into_any())
    }

    /// A switch.
    pub(crate) fn switch(self, name: &str, text: FieldText, checked: bool, default: bool) -> AnyView {
        let t = use_text();
        let id = self.id(name);
        let help_id = help_id(&id);
        let control = view! {
            <input
                id=id.clone()
                name=self.name(name)
                type="checkbox"
                value="true"
                checked=checked
                aria-describedby=help_id
            />
        };
        let default = if default { t.common.on } else { t.common.off };
        field(id, text, default.to_owned(), control.into_any())
    }

    /// A choice from a list: value and text of each.
    pub(crate) fn select(
        self,
        name: &str,
        text: FieldText,
        choices: Vec<(String, String)>,
        value: RwSignal<String>,
        default: &str,
    ) -> AnyView {
        let id = self.id(name);
        let help_id = help_id(&id);
        let control =
            view! { <Select id=id.clone() name=self.name(name) choices value describedby=help_id/> };
        field(id, text, default.to_owned(), control.into_any())
    }

    fn id(self, name: &str) -> String {
        format!("{}-{name}", self.prefix)
    }

    fn name(self, name: &str) -> String {
        if self.of.is_empty() { name.to_owned() } else { format!("{}[{name}]", self.of) }
    }
}

/// What numbers a control takes.
#[derive(Clone, Copy)]
pub(crate) struct Range {
    min: &'static str,
    max: Option<&'static str>,
    step: &'static str,
}

impl Range {
    /// 0, 1, 2, …
    pub(crate) const FROM_0: Self = Self { min: "0", max: None, step: "1" };
    /// 1, 2, 3, …
    pub(crate) const FROM_1: Self = Self { min: "1", max: None, step: "1" };
    /// A share, above 0 up to 1.
    pub(crate) const SHARE: Self = Self { min: "0.01", max: Some("1"), step: "0.01" };
    /// Anything above 0.
    pub(crate) const ABOVE_0: Self = Self { min: "0.001", max: None, step: "any" };
}

enum Kind {
    Number(Range),
    OptionalNumber(Range),
    Text,
    OptionalText,
    Secret,
}

/// A value as the text of its control.
pub(crate) fn signal_of(value: Option<impl ToString>) -> RwSignal<String> {
    RwSignal::new(value.map(|value| value.to_string()).unwrap_or_default())
}

/// A label, its control, and beside it what it does and its default.
fn field(id: String, text: FieldText, default: String, control: AnyView) -> AnyView {
    let t = use_text();
    let default = (!default.is_empty())
        .then(|| view! { <span class="field-default">{(t.common.default)(&default)}</span> }.into_any());
    let help_id = help_id(&id);
    view! {
        <div class="field">
            <label for=id>{text.label}</label>
            <div class="field-control">{control}</div>
            <p class="field-help" id=help_id>
                {text.help} " " {default}
            </p>
        </div>
    }
    .into_any()
}

fn help_id(id: &str) -> String {
    format!("{id}-help")
}

/// A select whose choice is a signal.
#[component]
pub(crate) fn Select(
    /// Its id.
    id: String,
    /// Its name in the form.
    #[prop(into)]
    name: String,
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
            .into_any()
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
