//! The pieces that the pages share.

pub(crate) mod ask;
pub(crate) mod badge;
pub(crate) mod confirm;
pub(crate) mod copy;
pub(crate) mod field;
pub(crate) mod filter;
pub(crate) mod form;
pub(crate) mod format;
pub(crate) mod icon;
pub(crate) mod load;
pub(crate) mod meter;
pub(crate) mod notice;
pub(crate) mod poll;
pub(crate) mod text;
pub(crate) mod toast;
pub(crate) mod when;
