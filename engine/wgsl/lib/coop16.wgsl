// Cooperative matrices of 16 x 16 values, as in Vulkan's drivers: factors of f16, and sums of f32.

alias Left = coop_mat16x16<f16, A>;
alias Right = coop_mat16x16<f16, B>;
alias Sums = coop_mat16x16<f32, C>;
