//! Repositories worth a look, for users who have no model yet.

/// A repository with models that run here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recommended {
    /// The repository, as [`ModelName`](crate::catalog::ModelName) reads it.
    pub name: &'static str,
    /// What it holds, in a few words.
    pub about: &'static str,
    /// The GPU memory in bytes that is enough for at least one of its models.
    pub memory: u64,
}

/// All of them, the best model first.
const ALL: [Recommended; 3] = [
    Recommended {
        name: "unsloth/GLM-4.7-Flash-GGUF",
        about: "GLM-4.7-Flash, 30B parameters, 3B active for each token",
        memory: 13_000_000_000,
    },
    Recommended {
        name: "unsloth/GLM-4.7-Flash-REAP-23B-A3B-GGUF",
        about: "GLM-4.7-Flash with fewer experts, 23B parameters",
        memory: 10_000_000_000,
    },
    Recommended {
        name: "tencent/Youtu-LLM-2B-GGUF",
        about: "Youtu-LLM, 2B parameters, for machines with little memory",
        memory: 3_000_000_000,
    },
];

/// The repositories with a model that fits into `memory` bytes of GPU memory, as far as that is known, the best first.
pub fn recommended(memory: Option<u64>) -> impl Iterator<Item = Recommended> {
    ALL.into_iter().filter(move |repository| memory.is_none_or(|memory| memory >= repository.memory))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{ALL, recommended};
    use crate::catalog::ModelName;

    #[test]
    fn what_is_recommended_fits() {
        let names = |gigabytes: Option<u64>| {
            recommended(gigabytes.map(|count| count * 1_000_000_000)).map(|it| it.name).collect::<Vec<_>>()
        };
        assert_eq!(names(None).len(), ALL.len());
        assert_eq!(names(Some(24)), names(None));
        assert!(names(Some(11))[0].ends_with("REAP-23B-A3B-GGUF"), "{:?}", names(Some(11)));
        assert_eq!(names(Some(4)), ["tencent/Youtu-LLM-2B-GGUF"]);
        assert!(names(Some(2)).is_empty());
        for repository in ALL {
            assert_eq!(repository.name.parse::<ModelName>().unwrap().to_string(), repository.name);
        }
    }
}
