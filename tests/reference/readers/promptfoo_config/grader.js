// Grades without a network: by the number in the answer; to one answer it says no JSON.
module.exports = class {
  id() { return 'grader'; }
  async callApi(prompt) {
    const [, k, n] = prompt.match(/answer (\d+) of (\d+)/);
    if (n === '4' && k === '4') return { output: 'I cannot say.' };
    return { output: JSON.stringify({ pass: k > 2, score: Math.round(100 * k / 6) / 100, reason: 'graded' }) };
  }
};
