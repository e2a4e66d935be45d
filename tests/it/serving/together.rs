//! Tests many conversations at once.

use super::{ANSWER, Serving, question};
use serde_json::{Value, json};

/// 64 conversations with four slots and a queue: each gets the answer that it gets alone.
#[test]
fn extended_sixty_four_conversations_get_their_answers() {
    let serving = Serving::start(&["--queue", "64"]);
    let stories = |number: usize| {
        let text = format!("What is {number} plus two?");
        json!({"messages": [{"role": "user", "content": text}], "temperature": 0, "max_tokens": 3})
    };
    let message = |body: &Value| {
        let answer = serving.post("/v1/chat/completions", body);
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()["choices"][0]["message"].clone()
    };
    let alone: Vec<Value> = (0..4).map(|number| message(&stories(number))).collect();
    std::thread::scope(|scope| {
        for number in 0..64 {
            let (message, alone) = (&message, &alone);
            scope.spawn(move || match number % 16 {
                0 => {
                    let told = message(&question());
                    assert_eq!(told["content"].as_str().unwrap().trim(), ANSWER, "{number}");
                }
                _ => assert_eq!(message(&stories(number % 4)), alone[number % 4], "{number}"),
            });
        }
    });
    assert_eq!(serving.figure("requests_refused_total"), 0);
}
