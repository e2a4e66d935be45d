//! Lets a caller ban or choose the tokens of a reply.

use crate::error::{Error, Result};
use crate::sample::{Sampler, SamplerParams};

/// Takes part in the choice of a reply's tokens: it bans some, or chooses each one itself. It is called once for each
/// token, on the thread that generates, with the logits read back from the GPU, which waits meanwhile.
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
/// # use wglm::{Chat, Gguf, Gpu, GpuOptions, LoadOptions, Model};
/// # let gpu = Gpu::open(&GpuOptions::default())?;
/// # let model = Model::load(&Gguf::from_static(wglm::DEMO_MODEL)?, &gpu, &LoadOptions::default())?;
/// # let mut chat = Chat::new(&model)?;
/// # chat.options.max_tokens = Some(8);
/// for event in chat.send("Tell me a story about an owl.")?.with_chooser(NoEcho(None)) {
///     println!("{:?}", event?);
/// }
/// # Ok(())
/// # }
/// ```
pub trait Chooser {
    /// Changes the logits {vocab} of the token that follows `tokens`, which are those of the prompt and of the reply so
    /// far. Minus infinity bans a token; the token that ends the reply can be banned too. If all tokens are banned, the
    /// reply fails. Bias and penalties are applied afterwards.
    ///
    /// # Errors
    /// Any error ends the reply with that error.
    fn mask(&mut self, logits: &mut [f32], tokens: &[u32]) -> Result<()> {
        let _ = (logits, tokens);
        Ok(())
    }

    /// Chooses a token by the logits {vocab} that [`mask`](Self::mask) changed. `None` leaves the choice to
    /// [`GenerateOptions::sampling`](super::GenerateOptions::sampling), bias and penalties included.
    ///
    /// # Errors
    /// Any error ends the reply with that error.
    fn choose(&mut self, logits: &[f32]) -> Result<Option<u32>> {
        let _ = logits;
        Ok(None)
    }

    /// Receives the chosen token, even if it is the one that ends the reply.
    ///
    /// # Errors
    /// Any error ends the reply with that error, and without the token.
    fn accept(&mut self, token: u32) -> Result<()> {
        let _ = token;
        Ok(())
    }
}

macro_rules! choosers {
    ($($of_chooser:ty),*) => {
        $(
            impl<C: Chooser + ?Sized> Chooser for $of_chooser {
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
        )*
    };
}

choosers!(&mut C, Box<C>);

/// A caller's chooser, and the sampler for the tokens that the chooser leaves to it.
pub(super) struct Steering<'a> {
    chooser: Box<dyn Chooser + Send + 'a>,
    sampler: Option<Sampler>,
}

impl<'a> Steering<'a> {
    pub(super) fn new(chooser: Box<dyn Chooser + Send + 'a>) -> Self {
        Self { chooser, sampler: None }
    }

    /// Chooses the token after `tokens` by its logits.
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
                return Err(Error::argument("chooser", expected, found));
            }
        };
        self.chooser.accept(token)?;
        if let Some(sampler) = &mut self.sampler {
            sampler.accept(token);
        }
        Ok(token)
    }

    /// The sampler. It is created when it is first needed, and then accepts all of `tokens`.
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
