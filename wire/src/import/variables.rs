//! Variables in a file: `${NAME}` in any text is replaced by what the environment has under that name.

use serde_json::Value;

use super::strict::within;
use super::{Problem, problem_at};

/// Replaces them in `value` and in all that is within it; `at` is its place in the file.
pub(super) fn expand(
    value: &mut Value,
    at: &str,
    environment: &dyn Fn(&str) -> Option<String>,
    problems: &mut Vec<Problem>,
) {
    match value {
        Value::String(text) => match expanded(text, environment) {
            Ok(expanded) => *text = expanded,
            Err(remedies) => problems.extend(remedies.into_iter().map(|remedy| problem_at(at, remedy))),
        },
        Value::Array(rows) => {
            for (n, row) in rows.iter_mut().enumerate() {
                expand(row, &format!("{at}[{n}]"), environment, problems);
            }
        }
        Value::Object(fields) => {
            for (name, value) in fields {
                let at = within(at, name);
                expand(value, &at, environment, problems);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// `text` with each `${NAME}` replaced, or what is wrong with each that can't be.
fn expanded(text: &str, environment: &dyn Fn(&str) -> Option<String>) -> Result<String, Vec<String>> {
    let mut expanded = String::new();
    let mut remedies = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        expanded.push_str(before);
        let Some((name, after)) = after.split_once('}') else {
            remedies.push("has a ${ that nothing closes; write ${NAME}".to_owned());
            rest = "";
            break;
        };
        match environment(name) {
            _ if name.is_empty() => remedies.push("has a ${} without a name; write ${NAME}".to_owned()),
            Some(value) => expanded.push_str(&value),
            None => remedies.push(format!("the environment has no {name}; set it")),
        }
        rest = after;
    }
    expanded.push_str(rest);
    if remedies.is_empty() { Ok(expanded) } else { Err(remedies) }
}

#[cfg(test)]
mod tests {
    use super::super::parse;

    fn problems(text: &str) -> Vec<String> {
        let environment = |name: &str| (name == "SIM_KEY").then(|| "sk-secret".to_owned());
        let problems = parse(text, &environment).expect_err("there is a problem");
        problems.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_variable_that_nothing_closes_is_refused_by_name() {
        assert_eq!(
            problems("accounts: [{label: a, account_key: \"x${SIM_KEY\"}]"),
            ["accounts[0]: account_key: has a ${ that nothing closes; write ${NAME}"]
        );
        assert_eq!(
            problems("accounts: [{label: a, account_key: \"${}${NOPE}${SIM_KEY}${\"}]"),
            [
                "accounts[0]: account_key: has a ${} without a name; write ${NAME}",
                "accounts[0]: account_key: the environment has no NOPE; set it",
                "accounts[0]: account_key: has a ${ that nothing closes; write ${NAME}",
            ]
        );
    }
}
