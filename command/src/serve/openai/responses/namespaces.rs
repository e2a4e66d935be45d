//! Namespaces of functions, in which Codex sends the functions of each MCP server. The model has no namespaces: it gets
//! each function under a name that joins those of its namespace and of the function. Clients see only the names that
//! they have sent.

use crate::serve::constraints::function;
use crate::serve::conversation::TOOLS;
use crate::serve::failure::{Failure, shown};
use crate::serve::fields::{at_most, at_most_in};
use crate::serve::memory::VALUE;
use crate::serve::unmet::Warnings;
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet};

/// The maximum number of characters in a name, as in OpenAI's API.
const LONGEST: usize = 64;

/// The maximum bytes in the name of a namespace, and of a function in one. They are repeated for each function.
const LONGEST_GIVEN: usize = 256;

/// The fields of a function, which in this interface are next to `type`.
const FIELDS: [&str; 3] = ["name", "description", "parameters"];

#[derive(Debug, Default)]
pub struct Namespaces {
    /// The namespaces and names of functions, by the names that the model gets, and the reverse.
    members: HashMap<String, (String, String)>,
    offered: HashMap<(String, String), String>,
}

fn kind(tool: &Value) -> Option<&str> {
    tool.get("type").and_then(Value::as_str)
}

/// The type of a tool and its name, `None` for a tool without a name.
fn named(tool: &Value) -> Option<(&str, &str)> {
    let name = fields("", tool).1.get("name").and_then(Value::as_str);
    kind(tool).zip(name)
}

fn is_function(tool: &Value) -> bool {
    kind(tool) == Some("function")
}

/// Where a tool has its fields, and the object that has them: the tool itself, or its field `function`, as in chat
/// completions.
fn fields<'a>(place: &str, tool: &'a Value) -> (String, &'a Value) {
    match tool.get("function").filter(|inner| inner.is_object() && tool.get("name").is_none_or(Value::is_null)) {
        Some(inner) => (format!("{place}.function"), inner),
        None => (place.to_owned(), tool),
    }
}

/// A function that the model gets, in the form of chat completions.
fn offered(place: &str, tool: &Value) -> Result<Value, Failure> {
    let (place, fields) = fields(place, tool);
    function(&place, fields, FIELDS)
}

/// Namespace and name in the characters that names may have. Codex's namespaces end with a separator.
fn joined(namespace: &str, name: &str) -> String {
    let separator = if namespace.ends_with('_') { "" } else { "__" };
    let is_plain = |sign: char| sign.is_ascii_alphanumeric() || sign == '_' || sign == '-';
    let plain = |sign: char| if is_plain(sign) { sign } else { '_' };
    namespace.chars().chain(separator.chars()).chain(name.chars()).map(plain).take(LONGEST).collect()
}

/// Refuses a long name for a namespace, or for a function in one.
fn check_name(name: &str) -> Result<(), Failure> {
    let place = format!("tools: the name {}", shown(name));
    at_most_in(&place, name.len(), LONGEST_GIVEN, "bytes").map_err(|failure| failure.with_param("tools"))
}

/// The names that functions already have.
#[derive(Default)]
struct Taken {
    names: HashSet<String>,
    /// The next number to be tried at the end of a name.
    numbers: HashMap<String, usize>,
}

impl Taken {
    /// Takes a name, with a number at its end if it is already taken.
    fn take(&mut self, name: String) -> String {
        if self.names.insert(name.clone()) {
            return name;
        }
        let number = self.numbers.entry(name.clone()).or_insert(2);
        loop {
            let end = format!("_{number}");
            *number += 1;
            let numbered = name.chars().take(LONGEST - end.len()).collect::<String>() + &end;
            if self.names.insert(numbered.clone()) {
                return numbered;
            }
        }
    }
}

impl Namespaces {
    /// The functions among the tools, including those in namespaces, in the form of chat completions, and the names of
    /// the latter. Warns about all other tools.
    pub fn read(tools: &[Value], warnings: &mut Warnings) -> Result<(Vec<Value>, Self), Failure> {
        let is_namespace = |tool: &Value| named(tool).is_some_and(|(kind, _)| kind == "namespace");
        warnings.tools("", tools, |tool| is_function(tool) || is_namespace(tool));
        let (mut functions, mut namespaces) = (Vec::new(), Self::default());
        let plain = tools.iter().filter_map(named).filter(|(kind, _)| *kind == "function");
        let mut taken = Taken { names: plain.map(|(_, name)| name.to_owned()).collect(), ..Taken::default() };
        for (index, tool) in tools.iter().enumerate() {
            let place = format!("tools[{index}]");
            match named(tool) {
                _ if is_function(tool) => functions.push(offered(&place, tool)?),
                Some(("namespace", namespace)) => {
                    namespaces.add(&place, (namespace, tool), &mut taken, &mut functions, warnings)?;
                }
                _ => {}
            }
        }
        Ok((functions, namespaces))
    }

    /// Adds the functions of a namespace. Its description is in that of the first one, so that a prompt has it once.
    fn add(
        &mut self,
        place: &str,
        (namespace, tool): (&str, &Value),
        taken: &mut Taken,
        functions: &mut Vec<Value>,
        warnings: &mut Warnings,
    ) -> Result<(), Failure> {
        check_name(namespace)?;
        let members = tool.get("tools").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        if members.is_empty() {
            warnings.add(&format!("namespace {}", shown(namespace)), "ignored; it has no tools");
        }
        warnings.tools(&format!(" in namespace {}", shown(namespace)), members, is_function);
        let mut about = tool.get("description").and_then(Value::as_str).filter(|about| !about.is_empty());
        for (index, tool) in members.iter().enumerate().filter(|(_, tool)| is_function(tool)) {
            let mut function = offered(&format!("{place}.tools[{index}]"), tool)?;
            let name = function["function"]["name"].as_str().unwrap_or_default();
            check_name(name)?;
            at_most("tools", functions.len() + 1, TOOLS, "functions")?;
            let offered = taken.take(joined(namespace, name));
            let member = (namespace.to_owned(), name.to_owned());
            self.members.insert(offered.clone(), member.clone());
            self.offered.insert(member, offered.clone());
            function["function"]["name"] = offered.into();
            if let Some(about) = about.take() {
                let own = function["function"]["description"].as_str().unwrap_or_default();
                function["function"]["description"] = format!("{about}\n\n{own}").trim_end().into();
            }
            functions.push(function);
        }
        Ok(())
    }

    /// About how many bytes of memory the names take.
    pub fn bytes(&self) -> usize {
        let each = |(offered, (namespace, name)): (&String, &(String, String))| {
            2 * (offered.len() + namespace.len() + name.len() + VALUE)
        };
        self.members.iter().map(each).sum()
    }

    /// The name that the model gets for a function, which may be one of an earlier request.
    pub fn offered(&self, namespace: &str, name: &str) -> String {
        let known = self.offered.get(&(namespace.to_owned(), name.to_owned()));
        known.cloned().unwrap_or_else(|| joined(namespace, name))
    }

    /// The namespace, if it has one, and the name of a function that the model calls.
    pub fn meant<'a>(&'a self, offered: &'a str) -> (Option<&'a str>, &'a str) {
        let member = self.members.get(offered);
        member.map_or((None, offered), |(namespace, name)| (Some(namespace.as_str()), name.as_str()))
    }

    /// A function that the model gets, as a client names it in `tool_choice`.
    pub fn chosen(&self, offered: &str) -> Value {
        match self.meant(offered) {
            (None, name) => json!({"type": "function", "name": name}),
            (Some(namespace), name) => json!({"type": "function", "namespace": namespace, "name": name}),
        }
    }

    /// Replaces the functions of namespaces in `tool_choice`, and whole namespaces, with the functions that the model
    /// gets.
    pub fn resolve(&self, choice: &mut Value) -> Result<(), Failure> {
        self.resolve_one(choice);
        for place in ["/tools", "/allowed_tools/tools"] {
            let Some(Value::Array(tools)) = choice.pointer_mut(place) else { continue };
            at_most("tool_choice", tools.len(), TOOLS, "tools")?;
            let mut whole = HashSet::new();
            tools.retain_mut(|tool| {
                if let Some(("namespace", name)) = named(tool) {
                    whole.insert(name.to_owned());
                    return false;
                }
                self.resolve_one(tool);
                true
            });
            let within = self.members.iter().filter(|(_, (namespace, _))| whole.contains(namespace));
            tools.extend(within.map(|(offered, _)| json!({"type": "function", "name": offered})));
        }
        Ok(())
    }

    fn resolve_one(&self, tool: &mut Value) {
        if let (Some(namespace), Some((_, name))) = (tool.get("namespace").and_then(Value::as_str), named(tool)) {
            let offered = self.offered(namespace, name).into();
            match tool.get_mut("function").filter(|inner| inner.is_object()) {
                Some(inner) => inner["name"] = offered,
                None => tool["name"] = offered,
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{LONGEST, LONGEST_GIVEN, Namespaces, TOOLS, Warnings};
    use serde_json::{Value, json};

    fn read(tools: &[Value]) -> (Vec<Value>, Namespaces) {
        Namespaces::read(tools, &mut Warnings::default()).unwrap()
    }

    fn namespace(name: &str, functions: &[&str]) -> Value {
        let function = |name: &&str| json!({"type": "function", "name": name, "parameters": {"type": "object"}});
        let tools: Vec<Value> = functions.iter().map(function).collect();
        json!({"type": "namespace", "name": name, "description": "Files.", "tools": tools})
    }

    fn names(functions: &[Value]) -> Vec<&str> {
        functions.iter().map(|function| function["function"]["name"].as_str().unwrap()).collect()
    }

    #[test]
    fn names_are_unique_and_lead_back() {
        let long = "n".repeat(80);
        let tools = [
            namespace("mcp__files__", &["read", "übrig"]),
            namespace("web", &["read", "read_2"]),
            json!({"type": "function", "name": "web__read"}),
            json!({"type": "web_search", "name": "search"}),
            namespace(&long, &["a", "b"]),
        ];
        let (functions, namespaces) = read(&tools);
        let cut = &long[..64];
        let second = format!("{}_2", &long[..62]);
        let wanted = [
            "mcp__files__read",
            "mcp__files___brig",
            "web__read_2",
            "web__read_2_2",
            "web__read",
            cut,
            second.as_str(),
        ];
        assert_eq!(names(&functions), wanted);
        for (namespace, name, offered) in [
            ("mcp__files__", "übrig", "mcp__files___brig"),
            ("web", "read", "web__read_2"),
            (long.as_str(), "b", second.as_str()),
        ] {
            assert_eq!(namespaces.offered(namespace, name), offered);
            assert_eq!(namespaces.meant(offered), (Some(namespace), name));
        }
        assert_eq!(namespaces.meant("web__read"), (None, "web__read"));
        assert_eq!(namespaces.offered("gone", "read"), "gone__read", "a function of an earlier request");
    }

    #[test]
    fn a_wrong_function_is_refused_where_it_is() {
        let function = json!({"type": "function", "name": "read", "parameters": "x"});
        let within = json!({"type": "namespace", "name": "files", "tools": [{"type": "custom"}, function]});
        let unnamed = json!({"type": "function", "name": ""});
        let nameless = json!({"type": "namespace", "name": "files", "tools": [{"type": "function"}]});
        let nested = json!({"type": "function", "function": {"name": "f", "parameters": []}});
        for (tool, field) in [
            (function, "tools[1].parameters"),
            (within, "tools[1].tools[1].parameters"),
            (unnamed, "tools[1].name"),
            (json!({"type": "function", "parameters": {}}), "tools[1].name"),
            (nameless, "tools[1].tools[0].name"),
            (nested, "tools[1].function.parameters"),
            (json!({"type": "function", "function": {}}), "tools[1].function.name"),
        ] {
            let failure = Namespaces::read(&[json!({"type": "web_search"}), tool], &mut Warnings::default());
            assert_eq!(failure.unwrap_err().param.as_deref(), Some(field));
        }
    }

    #[test]
    fn functions_may_have_the_form_of_chat_completions() {
        let flat = json!({"type": "function", "name": "read", "description": "Reads.", "strict": true});
        let nested = json!({"type": "function", "function": {"name": "read", "description": "Reads.", "strict": true}});
        let within = |tool: &Value| json!({"type": "namespace", "name": "files", "tools": [tool]});
        let mut warnings = Warnings::default();
        for [one, other] in [[flat.clone(), nested.clone()], [&flat, &nested].map(within)] {
            assert_eq!(Namespaces::read(&[other], &mut warnings).unwrap().0, read(&[one]).0);
        }
        assert!(warnings.texts().is_empty());
    }

    #[test]
    fn a_description_of_a_namespace_comes_once() {
        let (functions, _) = read(&[namespace("files", &["read", "write"])]);
        assert_eq!(functions[0]["function"]["description"], "Files.");
        assert!(functions[1]["function"].get("description").is_none(), "{functions:?}");
    }

    #[test]
    fn choices_of_functions_in_namespaces() {
        let (_, namespaces) = read(&[namespace("files", &["read"])]);
        let one = json!({"type": "function", "namespace": "files", "name": "read"});
        let mut choice = one.clone();
        namespaces.resolve(&mut choice).unwrap();
        assert_eq!(choice["name"], "files__read");
        assert_eq!(namespaces.chosen("files__read"), one);
        for tool in [one, json!({"type": "namespace", "name": "files"})] {
            let mut choice = json!({"type": "allowed_tools", "tools": [tool, {"type": "function", "name": "ls"}]});
            namespaces.resolve(&mut choice).unwrap();
            let names = choice["tools"].as_array().unwrap().iter().filter_map(|tool| tool["name"].as_str());
            let mut names: Vec<&str> = names.collect();
            names.sort_unstable();
            assert_eq!(names, ["files__read", "ls"]);
        }
    }

    /// However often a namespace is chosen, its functions are allowed once.
    #[test]
    fn choices_are_bounded() {
        let (_, namespaces) = read(&[namespace("files", &["read", "write"])]);
        let chosen = |count: usize| {
            let tools = vec![json!({"type": "namespace", "name": "files"}); count];
            let mut choice = json!({"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": tools}});
            namespaces.resolve(&mut choice).map(|()| choice["allowed_tools"]["tools"].as_array().unwrap().len())
        };
        assert_eq!(chosen(TOOLS).unwrap(), 2);
        assert_eq!(chosen(TOOLS + 1).unwrap_err().param.as_deref(), Some("tool_choice"));
    }

    #[test]
    fn names_and_functions_of_namespaces_are_bounded() {
        let refused = |tool: Value| Namespaces::read(&[tool], &mut Warnings::default()).unwrap_err();
        let [fits, long] = [LONGEST_GIVEN, LONGEST_GIVEN + 1].map(|length| "n".repeat(length));
        assert_eq!(read(&[namespace(&fits, &[&fits])]).0.len(), 1);
        for tool in [namespace(&long, &["read"]), namespace("files", &[&long])] {
            let failure = refused(tool);
            assert!(failure.message.contains("257 bytes; at most 256"), "{failure:?}");
            assert_eq!(failure.param.as_deref(), Some("tools"));
        }
        assert!(refused(namespace("files", &["read"; TOOLS + 1])).message.contains("at most 1024"));
        let (functions, namespaces) = read(&[namespace(&fits, &["read"; TOOLS])]);
        let mut names = names(&functions);
        names.sort_unstable();
        names.dedup();
        assert!(names.len() == TOOLS && names.iter().all(|name| name.len() <= LONGEST), "{names:?}");
        assert!(namespaces.bytes() > TOOLS * 2 * LONGEST_GIVEN);
    }

    #[test]
    fn other_tools_are_named() {
        let mut with_custom = namespace("files", &["read"]);
        with_custom["tools"].as_array_mut().unwrap().push(json!({"type": "custom", "name": "patch"}));
        let tools = [with_custom, json!({"type": "namespace", "name": "web"}), json!({"type": "web_search"})];
        let mut warnings = Warnings::default();
        assert_eq!(Namespaces::read(&tools, &mut warnings).unwrap().0.len(), 1);
        let why = "ignored; only function tools with a name are supported";
        let wanted = [
            format!("tool of type web_search: {why}"),
            format!("tool of type custom in namespace files: {why}"),
            "namespace web: ignored; it has no tools".to_owned(),
        ];
        assert_eq!(warnings.texts(), wanted);
    }
}
