//! Icons: one path each on a 16 × 16 grid, drawn with the colour of the text beside it.

use leptos::prelude::*;

/// What an icon shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Glyph {
    Check,
    Half,
    Cross,
    Clock,
    Question,
    Ban,
    Envelope,
    Play,
    Snow,
    Warning,
    Copy,
    Chevron,
    Plus,
    Retry,
    Fork,
    Pools,
    Key,
    List,
}

impl Glyph {
    fn path(self) -> &'static str {
        match self {
            Self::Check => "M3 8.5l3.2 3.2L13 4.8",
            Self::Half => "M8 2.5a5.5 5.5 0 0 1 0 11a5.5 5.5 0 0 1 0-11zM8 2.5v11M10 5v6M12 6.5v3",
            Self::Cross => "M4 4l8 8M12 4l-8 8",
            Self::Clock => "M8 2.5a5.5 5.5 0 1 0 0 11a5.5 5.5 0 0 0 0-11zM8 5v3.2l2.2 1.4",
            Self::Question => "M5.6 6.2a2.4 2.4 0 1 1 3.4 2.2c-.7.4-1 .8-1 1.5M8 12.2v.3",
            Self::Ban => "M8 2.5a5.5 5.5 0 1 0 0 11a5.5 5.5 0 0 0 0-11zM4.2 4.2l7.6 7.6",
            Self::Envelope => "M2.5 4h11v8h-11zM2.8 4.4L8 8.8l5.2-4.4",
            Self::Play => "M5 3.5l7 4.5-7 4.5z",
            Self::Snow => "M8 2v12M2.8 5l10.4 6M13.2 5L2.8 11",
            Self::Warning => "M8 2.5L14.2 13H1.8zM8 6.3v3.2M8 11.3v.2",
            Self::Copy => "M5.5 5.5h7.5V13H5.5zM3 10.5V3h7.5",
            Self::Chevron => "M6 3.5L10.5 8 6 12.5",
            Self::Plus => "M8 3v10M3 8h10",
            Self::Retry => "M12.8 8a4.8 4.8 0 1 1-1.4-3.4M12.8 2v3h-3",
            Self::Fork => "M2.5 8H6l3.5-4h4M6 8l3.5 4h4",
            Self::Pools => {
                "M2 4.8c2-1.5 4-1.5 6 0s4 1.5 6 0M2 8.3c2-1.5 4-1.5 6 0s4 1.5 6 0M2 11.8c2-1.5 4-1.5 6 0s4 1.5 6 0"
            }
            Self::Key => "M5.2 7.6a2.7 2.7 0 1 0 0 5.4a2.7 2.7 0 0 0 0-5.4zM7.2 8.4L13 2.6M10.6 5l2 2",
            Self::List => "M6 4h7.5M6 8h7.5M6 12h7.5M2.5 4h.5M2.5 8h.5M2.5 12h.5",
        }
    }
}

/// An icon. It says nothing by itself: a word stands beside it.
#[component]
pub(crate) fn Icon(
    /// What it shows.
    glyph: Glyph,
) -> impl IntoView {
    view! {
        <svg class="icon" viewBox="0 0 16 16" aria-hidden="true">
            <path d=glyph.path()></path>
        </svg>
    }
}
