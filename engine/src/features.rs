//! What a model can do, and what a request asks of one.

use std::sync::Arc;

/// What a model can do, as far as routing asks. `None` and a list that is not there restrict nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Features {
    /// It streams.
    pub stream: bool,
    /// It calls tools.
    pub tools: bool,
    /// It answers in a given JSON shape.
    pub structured: bool,
    /// It thinks before it answers.
    pub thinking: bool,
    /// It sees images.
    pub vision: bool,
    /// It edits images.
    pub image_edit: bool,
    /// Images that a request may carry as references.
    pub max_references: Option<u32>,
    /// Aspect ratios, as callers write them: `16:9`.
    pub ratios: Option<Vec<Arc<str>>>,
    /// Resolutions, as callers write them: `1080p`.
    pub resolutions: Option<Vec<Arc<str>>>,
    /// Lengths of a video, in seconds.
    pub durations: Option<Vec<u32>>,
    /// The public names of its voices.
    pub voices: Option<Vec<Arc<str>>>,
    /// Tokens that its context holds.
    pub max_context: Option<u64>,
    /// Tokens that it answers with at most.
    pub max_output: Option<u64>,
}

impl Default for Features {
    /// What a model that declares nothing is taken to do.
    fn default() -> Self {
        Self {
            stream: true,
            tools: true,
            structured: true,
            thinking: false,
            vision: true,
            image_edit: false,
            max_references: None,
            ratios: None,
            resolutions: None,
            durations: None,
            voices: None,
            max_context: None,
            max_output: None,
        }
    }
}

/// What a request asks of a model. The default asks nothing in particular.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// A streamed answer.
    pub stream: bool,
    /// Tool calls.
    pub tools: bool,
    /// A given JSON shape.
    pub structured: bool,
    /// Thinking.
    pub thinking: bool,
    /// Images in the input.
    pub vision: bool,
    /// An image edited.
    pub image_edit: bool,
    /// Images that it carries as references.
    pub references: u32,
    /// This aspect ratio.
    pub ratio: Option<Arc<str>>,
    /// This resolution.
    pub resolution: Option<Arc<str>>,
    /// A video of so many seconds.
    pub duration: Option<u32>,
    /// This voice, by its public name.
    pub voice: Option<Arc<str>>,
    /// Input tokens, estimated; 0 = unknown.
    pub context_tokens: u64,
    /// Output tokens that it asks for.
    pub output_tokens: Option<u64>,
}

impl Needs {
    /// The first thing that `features` lack, by the name that callers are told. Allocates nothing: it
    /// is asked for each candidate of each pick.
    pub fn missing_in(&self, features: &Features) -> Option<&'static str> {
        let flags = [
            ("stream", self.stream && !features.stream),
            ("tools", self.tools && !features.tools),
            ("structured", self.structured && !features.structured),
            ("thinking", self.thinking && !features.thinking),
            ("vision", self.vision && !features.vision),
            ("image_edit", self.image_edit && !features.image_edit),
            ("references", exceeds(self.references.into(), features.max_references.map(u64::from))),
            ("ratio", is_unlisted(self.ratio.as_ref(), features.ratios.as_deref())),
            ("resolution", is_unlisted(self.resolution.as_ref(), features.resolutions.as_deref())),
            ("duration", is_unlisted(self.duration.as_ref(), features.durations.as_deref())),
            ("voice", is_unlisted(self.voice.as_ref(), features.voices.as_deref())),
            ("max_context", exceeds(self.context_tokens, features.max_context)),
            ("max_output", exceeds(self.output_tokens.unwrap_or(0), features.max_output)),
        ];
        flags.into_iter().find_map(|(name, is_missing)| is_missing.then_some(name))
    }
}

fn exceeds(asked: u64, limit: Option<u64>) -> bool {
    limit.is_some_and(|limit| asked > limit)
}

fn is_unlisted<T: PartialEq>(asked: Option<&T>, listed: Option<&[T]>) -> bool {
    asked.zip(listed).is_some_and(|(asked, listed)| !listed.contains(asked))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Option<Vec<Arc<str>>> {
        Some(names.iter().map(|name| Arc::from(*name)).collect())
    }

    fn name(name: &str) -> Option<Arc<str>> {
        Some(name.into())
    }

    /// A model that can do everything, within limits.
    fn able() -> Features {
        Features {
            stream: true,
            tools: true,
            structured: true,
            thinking: true,
            vision: true,
            image_edit: true,
            max_references: Some(2),
            ratios: names(&["1:1", "16:9"]),
            resolutions: names(&["720p", "1080p"]),
            durations: Some(vec![5, 10]),
            voices: names(&["alloy", "echo"]),
            max_context: Some(8_000),
            max_output: Some(1_000),
        }
    }

    type Row = (&'static str, Needs, fn(&mut Features));

    /// Each feature: a need that [`able`] meets, and the change of it that no longer does.
    fn table() -> Vec<Row> {
        let none = Needs::default;
        vec![
            ("stream", Needs { stream: true, ..none() }, |f| f.stream = false),
            ("tools", Needs { tools: true, ..none() }, |f| f.tools = false),
            ("structured", Needs { structured: true, ..none() }, |f| f.structured = false),
            ("thinking", Needs { thinking: true, ..none() }, |f| f.thinking = false),
            ("vision", Needs { vision: true, ..none() }, |f| f.vision = false),
            ("image_edit", Needs { image_edit: true, ..none() }, |f| f.image_edit = false),
            ("references", Needs { references: 2, ..none() }, |f| f.max_references = Some(1)),
            ("ratio", Needs { ratio: name("16:9"), ..none() }, |f| f.ratios = names(&["1:1"])),
            ("resolution", Needs { resolution: name("1080p"), ..none() }, |f| f.resolutions = names(&["4k"])),
            ("duration", Needs { duration: Some(10), ..none() }, |f| f.durations = Some(vec![5])),
            ("voice", Needs { voice: name("echo"), ..none() }, |f| f.voices = names(&[])),
            ("max_context", Needs { context_tokens: 8_000, ..none() }, |f| f.max_context = Some(7_999)),
            ("max_output", Needs { output_tokens: Some(1_000), ..none() }, |f| f.max_output = Some(999)),
        ]
    }

    #[test]
    fn each_feature_is_missed_by_its_name_and_by_no_other() {
        for (name, needs, break_it) in table() {
            assert_eq!(needs.missing_in(&able()), None, "{name} is there");
            let mut features = able();
            break_it(&mut features);
            assert_eq!(needs.missing_in(&features), Some(name));
            for (other, needs, _) in table().into_iter().filter(|(other, ..)| *other != name) {
                assert_eq!(needs.missing_in(&features), None, "{other} does not need {name}");
            }
        }
    }

    #[test]
    fn a_model_that_declares_nothing_restricts_nothing_but_thinking_and_edits() {
        for (name, needs, _) in table() {
            let expected = matches!(name, "thinking" | "image_edit").then_some(name);
            assert_eq!(needs.missing_in(&Features::default()), expected);
        }
    }
}
