// Answers without a network: by the strength of the provider, and once with an error.
const asked = {};
module.exports = class {
  constructor(options) { this.strength = options.config.strength; }
  id() { return 'provider'; }
  async callApi(prompt) {
    const n = parseInt(prompt.match(/\d+/)[0]);
    const key = `${this.strength}/${n}`;
    asked[key] = (asked[key] || 0) + 1;
    if (key === '3/7' && asked[key] === 2) return { error: 'planned' };
    return { output: `answer ${(n * this.strength + asked[key] - 1) % 7} of ${n}` };
  }
};
