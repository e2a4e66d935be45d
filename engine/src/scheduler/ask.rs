//! Replies of a scheduler that are values of a type, or match a schema.

use super::{ScheduledReply, Scheduler};
use crate::cancel::Cancel;
use crate::chat::{AskError, ChatState, answer_of, constraint_of, read};
use crate::constrain::{Calls, Constraint};
use crate::error::Error;
use crate::generate::Stop;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;

impl Scheduler {
    /// Requests a reply to a conversation, waits for it, and returns it as a value, like
    /// [`Chat::ask`](crate::Chat::ask), together with other replies. `cancel` stops it.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use wglm::{Gguf, Gpu, GpuOptions, LoadOptions, Model};
    /// # let gpu = Gpu::open(&GpuOptions::default())?;
    /// # let model = Model::load(&Gguf::from_static(wglm::DEMO_MODEL)?, &gpu, &LoadOptions::default())?;
    /// use wglm::{Cancel, ChatState, Message, Scheduler, SchedulerOptions};
    ///
    /// #[derive(serde::Deserialize, schemars::JsonSchema)]
    /// struct Sum {
    ///     #[schemars(range(min = 0, max = 99))]
    ///     sum: u32,
    /// }
    ///
    /// let scheduler = Scheduler::new(&model, &SchedulerOptions::default())?;
    /// let messages = vec![Message::user("What is seven plus five?")];
    /// let request = ChatState { messages, reasoning: Some(false), ..ChatState::default() };
    /// let Sum { sum } = scheduler.ask(request, &Cancel::default())?;
    /// assert!(sum <= 99);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The errors of [`Chat::ask_with`](crate::Chat::ask_with), and [`Error::Busy`] if too many requests wait.
    pub fn ask<T: DeserializeOwned + JsonSchema>(&self, request: ChatState, cancel: &Cancel) -> Result<T, AskError> {
        let answer = self.answer(request, constraint_of::<T>()?, cancel)?;
        read(&T::schema_name(), answer)
    }

    /// Like [`ask`](Self::ask), with a JSON schema as a value, and an answer as one: see
    /// [`Chat::ask_value`](crate::Chat::ask_value).
    ///
    /// # Errors
    /// The errors of [`Chat::ask_value`](crate::Chat::ask_value), and [`Error::Busy`] if too many requests wait.
    pub fn ask_value(&self, request: ChatState, schema: &Value, cancel: &Cancel) -> Result<Value, AskError> {
        let answer = self.answer(request, Constraint::json_schema(schema.clone())?, cancel)?;
        read("JSON", answer)
    }

    fn answer(&self, request: ChatState, constraint: Constraint, cancel: &Cancel) -> Result<(String, Stop), Error> {
        answer_of(self.constrained(request, constraint)?.with_cancel(cancel))
    }

    /// A reply by a constraint, and without calls.
    pub(crate) fn constrained(&self, mut request: ChatState, constraint: Constraint) -> Result<ScheduledReply, Error> {
        (request.options.constraint, request.options.calls) = (Some(constraint), Calls::None);
        self.chat(request)
    }
}
