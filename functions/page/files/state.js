// What views and the page's frame share: drawing again, and saying a thing to people who hear the page.

let draw = () => {};
let due = false;

// onUpdate sets what draws the page.
export const onUpdate = (callback) => { draw = callback; };

// update draws the page soon, once for all changes of the moment.
export function update() {
  if (due) return;
  due = true;
  queueMicrotask(() => {
    due = false;
    draw();
  });
}

// say has a sentence read out, when what is being said has ended.
export function say(sentence) {
  document.getElementById("said").textContent = sentence;
}
