//! Reads a vocabulary from the metadata of a GGUF file.

use super::{TokenType, Vocab, pretokenizer};
use crate::error::{Error, Result};
use crate::gguf::Gguf;

impl Vocab {
    /// Reads the vocabulary of a file; `None` if the file declares that it has none.
    ///
    /// # Errors
    /// [`Error::Metadata`] if a key is missing or has the wrong type, [`Error::Unsupported`] for a tokenizer other than
    /// byte-level BPE.
    pub fn read(file: &Gguf) -> Result<Option<Self>> {
        match file.opt_string("tokenizer.ggml.model")? {
            None | Some("none" | "no_vocab") => return Ok(None),
            Some("gpt2") => {}
            Some(other) => {
                let (what, remedy) =
                    ("this value of `tokenizer.ggml.model`", "wglm supports only `gpt2` (byte-level BPE)");
                return Err(Error::unsupported(what, format!("`{other}`"), remedy));
            }
        }
        let owned = |strings: Vec<&str>| strings.into_iter().map(str::to_owned).collect();
        let types = file.opt_i32s("tokenizer.ggml.token_type")?.unwrap_or_default();
        let pre = file.opt_string("tokenizer.ggml.pre")?.unwrap_or(pretokenizer::UNNAMED);
        // As in llama.cpp, this vocabulary alone may be without merges.
        let key = "tokenizer.ggml.merges";
        let merges = if pre == "kimi-k2" { file.opt_strings(key)?.unwrap_or_default() } else { file.strings(key)? };
        let bos = file.opt_u32("tokenizer.ggml.bos_token_id")?;
        let usual = bos.is_some() && pretokenizer::family(pre).is_ok_and(|family| family.add_bos);
        let ends = ["eos", "eot", "eom", "fim_pad", "fim_rep", "fim_sep"];
        let ends = ends.map(|name| file.opt_u32(&format!("tokenizer.ggml.{name}_token_id")));
        let infill = ["fim_pre", "fim_suf", "fim_mid"].map(|name| format!("tokenizer.ggml.{name}_token_id"));
        let [prefix, suffix, middle] = infill.map(|name| file.opt_u32(&name));
        Ok(Some(Self {
            tokens: owned(file.strings("tokenizer.ggml.tokens")?),
            types: types.into_iter().map(TokenType::from_gguf).collect(),
            merges: owned(merges),
            pre: pre.to_owned(),
            bos,
            add_bos: file.opt_bool("tokenizer.ggml.add_bos_token")?.unwrap_or(usual),
            eos: file.opt_u32("tokenizer.ggml.eos_token_id")?,
            end: ends.into_iter().filter_map(Result::transpose).collect::<Result<_>>()?,
            infill: [prefix?, suffix?, middle?],
        }))
    }
}
