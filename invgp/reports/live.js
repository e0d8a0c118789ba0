// Live page: ask for the progress once per second, and draw the posterior if there is a new one.
function live() {
  const get = (id) => document.getElementById(id);
  const say = (id, text) => { get(id).textContent = text; };
  let drawn = 0;
  let survey = null;
  let misses = 0;
  let ended = false;

  function options(select, entries) {
    const before = select.value;
    clear(select);
    for (const [value, text] of entries) select.add(new Option(text, value));
    if (entries.some(([value]) => value === before)) select.value = before;
    select.closest('label').hidden = entries.length < 2;
  }
  const latent = () => survey.latents[Number(get('latent').value)];
  function layerOptions() {
    const entries = latent().layers.map((layer, k) => [String(k), layer.label || latent().name]);
    const line = survey.coordinates.length === 1;
    options(get('layer'), line && entries.length > 1 ? [['all', 'all'], ...entries] : entries);
    say('dimension', sentenceCase(latent().dimension || 'label'));
  }
  function draw() {
    if (!survey) return;
    const chosen = get('layer').value;
    const layers = chosen === 'all' ? latent().layers : [latent().layers[Number(chosen)]];
    const plot = survey.coordinates.length === 1 ? drawSection : drawMap;
    plot(get('field'), survey, latent(), plot === drawMap ? layers[0] : layers, get('quantity').value);
    get('field').setAttribute('aria-label', `${QUANTITIES[get('quantity').value]} of ${latent().words}`);
  }
  function showScalars(scalars) {
    const body = clear(get('scalars').tBodies[0]);
    for (const one of scalars) {
      const row = body.insertRow();
      row.insertCell().textContent = one.name;
      row.insertCell().textContent = appendUnit(plusMinus(one.mean, one.std), one.unit);
    }
    get('scalars').hidden = !scalars.length;
  }
  async function refreshFields() {
    const data = await (await fetch('fields.json')).json();
    if (!data) return;
    get('maps').hidden = false;
    showScalars(data.scalars);
    if (data.fields && data.fields.latents.length) {
      survey = readSurvey(data.fields);
      say('points', `${survey.point.toLowerCase()}s`);
      options(get('latent'), survey.latents.map((one, k) => [String(k), one.name]));
      options(get('quantity'), Object.entries(QUANTITIES).map(([key, text]) => [key, key === 'mean' && survey.coordinates.length > 1 ? 'Mean' : text]));
      layerOptions();
      draw();
    }
    drawn = data.number;
  }
  function showProgress(state) {
    get('bar').value = state.share;
    for (const id of ['where', 'bound', 'runs', 'elapsed']) say(id, state[id]);
    say('reused', state.reused.toLocaleString('en'));
    say('at-once', state.atOnce ? state.atOnce.toFixed(1) : '–');
    say('status', state.outcome || (state.failed ? `Running. ${state.failed.toLocaleString('en')} runs have failed.` : 'Running.'));
    get('status').className = `verdict ${state.outcome || state.failed ? 'doubt' : 'good'}`;
    get('failures').hidden = !state.messages.length;
    const list = clear(get('messages'));
    for (const message of state.messages) list.appendChild(document.createElement('li')).textContent = message;
  }
  async function ask() {
    try {
      const state = await (await fetch('progress.json')).json();
      misses = 0;
      showProgress(state);
      if (ended) return;
      if (state.posteriors > drawn) await refreshFields();
      ended = Boolean(state.outcome); // the server ends after one more question
    } catch (error) {
      misses += 1;
      if (ended) return;
      if (misses > 3) {
        say('status', 'No reply: the command has ended.');
        get('status').className = 'verdict bad';
        return;
      }
    }
    setTimeout(ask, ended ? 0 : 1000);
  }

  get('latent').addEventListener('change', () => { layerOptions(); draw(); });
  for (const id of ['layer', 'quantity']) get(id).addEventListener('change', draw);
  window.addEventListener('resize', draw);
  ask();
}

live();
