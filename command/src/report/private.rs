//! Removes private data from a report: home folders, user names, and the paths of models.

use std::path::Path;

/// Folders that hold the home folders of users.
const HOMES: [&str; 3] = ["/Users/", "/home/", "\\Users\\"];
/// The replacement of a name.
const USER: &str = "USER";

#[derive(Debug, Default)]
pub struct Private {
    /// Texts, longest first, and their replacements.
    replaced: Vec<(String, &'static str)>,
    user: Option<String>,
}

impl Private {
    /// The home folder and the user's name from the environment, and the folder of a model.
    pub fn of_environment(model: Option<&Path>) -> Self {
        let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let home = variable("HOME").or_else(|| variable("USERPROFILE"));
        let user = ["USER", "LOGNAME", "USERNAME"].into_iter().find_map(variable);
        Self::of(home, user, model)
    }

    fn of(home: Option<String>, user: Option<String>, model: Option<&Path>) -> Self {
        let folders = model.into_iter().flat_map(|path| [Some(path.to_owned()), path.canonicalize().ok()]).flatten();
        let folder = |path: std::path::PathBuf| {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty())?;
            Some((format!("{}{}", folder.display(), std::path::MAIN_SEPARATOR), ""))
        };
        let mut replaced: Vec<(String, &str)> = folders.filter_map(folder).collect();
        replaced.extend(home.filter(|home| home.len() > 1).map(|home| (home, "~")));
        replaced.retain(|(text, _)| text.len() > 1); // not the root
        replaced.sort_by_key(|(text, _)| std::cmp::Reverse(text.len()));
        Self { replaced, user: user.filter(|user| user != "root") }
    }

    /// A line without private data.
    pub fn hidden(&self, line: &str) -> String {
        let mut line = line.to_owned();
        for (text, by) in &self.replaced {
            line = line.replace(text.as_str(), by);
        }
        for homes in HOMES {
            line = without_names(&line, homes);
        }
        match &self.user {
            Some(user) => without_word(&line, user),
            None => line,
        }
    }
}

/// A line in which the path component after `homes` is replaced.
fn without_names(line: &str, homes: &str) -> String {
    let mut parts = line.split(homes);
    let mut hidden = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(|c: char| "/\\\"'`:,; )".contains(c)).unwrap_or(part.len());
        hidden += homes;
        hidden += if end > 0 { USER } else { "" };
        hidden += &part[end..];
    }
    hidden
}

/// A line in which a standalone word is replaced.
fn without_word(line: &str, word: &str) -> String {
    let in_word = |c: char| c.is_alphanumeric() || c == '_';
    let (mut hidden, mut rest) = (String::new(), line);
    while let Some(at) = rest.find(word) {
        let (before, found) = rest.split_at(at);
        let after = &found[word.len()..];
        let whole = !before.ends_with(in_word) && !after.starts_with(in_word);
        let joined = before.is_empty() && hidden.ends_with(in_word);
        hidden += before;
        hidden += if whole && !joined { USER } else { word };
        rest = after;
    }
    hidden + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_private_is_hidden() {
        let private = Private::of(
            Some("/data/homes/jane".into()),
            Some("jane".into()),
            Some(Path::new("/Volumes/Secret plans/glm.gguf")),
        );
        for (line, hidden) in [
            ("cannot read /data/homes/jane/a.gguf", "cannot read ~/a.gguf"),
            ("/Volumes/Secret plans/glm.gguf: 17 GB", "glm.gguf: 17 GB"),
            (
                "\"/Users/joe\" and /home/joe/x, C:\\Users\\joe\\y",
                "\"/Users/USER\" and /home/USER/x, C:\\Users\\USER\\y",
            ),
            ("jane's Mac, janet, _jane jane", "USER's Mac, janet, _jane USER"),
            ("/home/", "/home/"),
            ("| mul_mv | 3.1e-7 |", "| mul_mv | 3.1e-7 |"),
        ] {
            assert_eq!(private.hidden(line), hidden);
        }
        assert_eq!(Private::of(Some("/".into()), Some("root".into()), None).hidden("/a root"), "/a root");
    }
}
