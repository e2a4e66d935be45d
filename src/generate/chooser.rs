//! A caller's say in which tokens a reply is made of.

use crate::error::{Error, Result};
use crate::sample::{Sampler, SamplerParams};

/// Has a say in which tokens a reply is made of: bans some, or chooses each itself. It is asked once for each token, on
/// the thread that generates, with the logits read back from the GPU, which waits meanwhile.
///
/// ```
/// use wglm::{Chooser, Result};
///
/// /// Keeps a token from coming twice in a row.
/// struct NoEcho(Option<u32>);
///
/// impl Chooser for NoEcho {
///     fn mask(&mut self, logits: &mut [f32], _: &[u32]) -> Result<()> {
///         if let Some(logit) = self.0.and_then(|token| logits.get_mut(token as usize)) {
///             *logit = f32::NEG_INFINITY;
///         }
///         Ok(())
///     }
///
///     fn accept(&mut self, token: u32) -> Result<()> {
///         self.0 = Some(token);
///         Ok(())
///     }
/// }
/// # fn main() -> Result<()> {
/// # #[cfg(feature = "demo-model")] {
/// # use wglm::{Chat, Gguf, Gpu, GpuOptions, LoadOptions, Model};
/// # let gpu = Gpu::open(&GpuOptions::default())?;
/// # let model = Model::load(&Gguf::from_static(wglm::DEMO_MODEL)?, &gpu, &LoadOptions::default())?;
/// # let mut chat = Chat::new(&model)?;
/// # chat.options.max_tokens = Some(8);
/// for event in chat.send("Tell me a story about an owl.")?.with_chooser(NoEcho(None)) {
///     println!("{:?}", event?);
/// }
/// # }
/// # Ok(())
/// # }
/// ```
pub trait Chooser {
    /// Changes the logits {vocab} of the token that follows `tokens`, the prompt's and the reply's so far. Minus
    /// infinity bans a token, the one that ends the reply too; with all of them banned the reply fails. Bias and
    /// penalties come after it.
    ///
    /// # Errors
    /// Any; the reply fails with it.
    fn mask(&mut self, logits: &mut [f32], tokens: &[u32]) -> Result<()> {
        let _ = (logits, tokens);
        Ok(())
    }

    /// Chooses a token by the logits {vocab} as [`mask`](Self::mask) left them. None leaves it to
    /// [`GenerateOptions::sampling`](super::GenerateOptions::sampling), bias and penalties included.
    ///
    /// # Errors
    /// Any; the reply fails with it.
    fn choose(&mut self, logits: &[f32]) -> Result<Option<u32>> {
        let _ = logits;
        Ok(None)
    }

    /// Hears which token was chosen, the one that ends the reply too.
    ///
    /// # Errors
    /// Any; the reply fails with it, and without the token.
    fn accept(&mut self, token: u32) -> Result<()> {
        let _ = token;
        Ok(())
    }
}

impl<C: Chooser + ?Sized> Chooser for &mut C {
    fn mask(&mut self, logits: &mut [f32], tokens: &[u32]) -> Result<()> {
        (**self).mask(logits, tokens)
    }

    fn choose(&mut self, logits: &[f32]) -> Result<Option<u32>> {
        (**self).choose(logits)
    }

    fn accept(&mut self, token: u32) -> Result<()> {
        (**self).accept(token)
    }
}

impl<C: Chooser + ?Sized> Chooser for Box<C> {
    fn mask(&mut self, logits: &mut [f32], tokens: &[u32]) -> Result<()> {
        (**self).mask(logits, tokens)
    }

    fn choose(&mut self, logits: &[f32]) -> Result<Option<u32>> {
        (**self).choose(logits)
    }

    fn accept(&mut self, token: u32) -> Result<()> {
        (**self).accept(token)
    }
}

/// A caller's chooser, and the sampler for what it leaves open.
pub(super) struct Steering<'a> {
    chooser: Box<dyn Chooser + Send + 'a>,
    sampler: Option<Sampler>,
}

impl<'a> Steering<'a> {
    pub(super) fn new(chooser: Box<dyn Chooser + Send + 'a>) -> Self {
        Self { chooser, sampler: None }
    }

    /// The token after `tokens`, by its logits.
    pub(super) fn choose(&mut self, logits: &mut [f32], tokens: &[u32], params: &SamplerParams) -> Result<u32> {
        let candidates = |logits: &[f32]| logits.iter().any(|logit| *logit > f32::NEG_INFINITY);
        if !candidates(logits) {
            return Err(Error::NotANumber);
        }
        self.chooser.mask(logits, tokens)?;
        let token = match self.chooser.choose(logits)? {
            Some(token) => token,
            None if candidates(logits) => self.sampler(tokens, params)?.sample(logits)?,
            None => {
                let (expected, found) = ("a token that is not banned", format!("all {} banned", logits.len()));
                return Err(Error::Argument { argument: "chooser", expected: expected.to_owned(), found });
            }
        };
        self.chooser.accept(token)?;
        if let Some(sampler) = &mut self.sampler {
            sampler.accept(token);
        }
        Ok(token)
    }

    /// The sampler, which has seen `tokens` once it is there.
    fn sampler(&mut self, tokens: &[u32], params: &SamplerParams) -> Result<&mut Sampler> {
        let sampler = match self.sampler.take() {
            Some(sampler) => sampler,
            None => {
                let mut sampler = Sampler::new(params.clone())?;
                tokens.iter().for_each(|token| sampler.accept(*token));
                sampler
            }
        };
        Ok(self.sampler.insert(sampler))
    }
}
