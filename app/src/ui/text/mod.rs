//! Every text of the console, in each of its languages. Components hold none: they read a field of
//! [`Text`]. One file a page, both languages side by side, so that a text can't be forgotten in one.

mod accounts;
mod common;
mod pools;
mod session;
mod tasks;

use leptos::prelude::expect_context;
use serde::{Deserialize, Serialize};

use crate::frame::Frame;

/// A language of the console.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Language {
    /// English.
    #[default]
    English,
    /// 简体中文.
    Chinese,
}

impl Language {
    /// Every language, in the order of the switch.
    pub const ALL: [Self; 2] = [Self::English, Self::Chinese];

    /// The cookie that keeps an operator's choice.
    pub const COOKIE: &'static str = "forebay_language";

    /// The tag for `<html lang>` and the cookie.
    #[must_use]
    pub fn tag(self) -> &'static str {
        match self {
            Self::English => "en",
            Self::Chinese => "zh-CN",
        }
    }

    /// The language of a tag, if it is one of ours.
    #[must_use]
    pub fn of_tag(tag: &str) -> Option<Self> {
        let primary = tag.trim().split('-').next().unwrap_or_default();
        match primary.to_ascii_lowercase().as_str() {
            "en" => Some(Self::English),
            "zh" => Some(Self::Chinese),
            _ => None,
        }
    }

    /// The first language of an `Accept-Language` header that is one of ours. Browsers send them
    /// by preference, so that the weights need no reading.
    #[must_use]
    pub fn negotiate(accept: &str) -> Self {
        accept
            .split(',')
            .find_map(|range| Self::of_tag(range.split(';').next().unwrap_or_default()))
            .unwrap_or_default()
    }

    /// The language's own name.
    pub(crate) fn own_name(self) -> &'static str {
        match self {
            Self::English => "English",
            Self::Chinese => "简体中文",
        }
    }

    fn text(self) -> &'static Text {
        match self {
            Self::English => &ENGLISH,
            Self::Chinese => &CHINESE,
        }
    }
}

/// The texts of one language.
pub(crate) struct Text {
    pub(crate) common: common::Common,
    pub(crate) pools: pools::Pools,
    pub(crate) accounts: accounts::Accounts,
    pub(crate) tasks: tasks::Tasks,
    pub(crate) session: session::Session,
}

/// The texts of a form's field.
#[derive(Clone, Copy)]
pub(crate) struct FieldText {
    /// Its label.
    pub(crate) label: &'static str,
    /// What it does.
    pub(crate) help: &'static str,
}

const fn field(label: &'static str, help: &'static str) -> FieldText {
    FieldText { label, help }
}

static ENGLISH: Text = Text {
    common: common::ENGLISH,
    pools: pools::ENGLISH,
    accounts: accounts::ENGLISH,
    tasks: tasks::ENGLISH,
    session: session::ENGLISH,
};

static CHINESE: Text = Text {
    common: common::CHINESE,
    pools: pools::CHINESE,
    accounts: accounts::CHINESE,
    tasks: tasks::CHINESE,
    session: session::CHINESE,
};

/// The texts of this request's language.
pub(crate) fn use_text() -> &'static Text {
    expect_context::<Frame>().language.text()
}

#[cfg(test)]
mod tests {
    use super::Language;

    #[test]
    fn the_browsers_first_known_language_is_taken() {
        assert_eq!(Language::negotiate("de-DE,zh-TW;q=0.8,en;q=0.5"), Language::Chinese);
        assert_eq!(Language::negotiate("en-GB,zh;q=0.9"), Language::English);
        assert_eq!(Language::negotiate("fr"), Language::English);
        assert_eq!(Language::negotiate(""), Language::English);
    }

    #[test]
    fn a_tag_finds_its_language_again() {
        for language in Language::ALL {
            assert_eq!(Language::of_tag(language.tag()), Some(language));
        }
    }
}
